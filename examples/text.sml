# A byte-level transformer on Hamlet.
#   scellis train examples/text.sml
#   scellis sample RUN --prompt "To be, or "
sml: 1
model: user/examples/text

architecture:
  block_id: model/decoder_transformer
  vocab_size: 256         # bytes
  context: 64
  width: 64
  layers: 2
  heads: 4

data:
  block_id: data/text
  path: data/hamlet.txt   # beside this record
  sha256: bbe5635616c6e0e0bcf01b7b8c324be8b42451c51848f11c283bd2f4442b1e0a
  context: 64
  split: { val: 0.1 }     # the last tenth of the play

optimizer:
  block_id: training/optimizer/adamw
  lr: 3.0e-3
  weight_decay: 0.1
  groups: [{ match: "*.bias|*norm*", weight_decay: 0.0 }]   # decay matrices only
scheduler: { block_id: training/scheduler/warmup_cosine, warmup_steps: 50, min_ratio: 0.1 }
loss: { block_id: training/loss/cross_entropy }
metrics: [{ block_id: metric/accuracy }, { block_id: metric/perplexity }]
grad_clip: { max_norm: 1.0 }

epochs: 10
batch_size: 32            # 77 updates an epoch
determinism_tier: prod
seed: 42
