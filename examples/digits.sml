# Handwritten digits with a small multi-layer perceptron: the demo.
#   scellis train examples/digits.sml
# Reaches about 98 % validation accuracy; the data comes with the package, nothing is downloaded.
sml: 1
model: user/examples/digits

architecture:
  block_id: model/mlp
  hidden: [128, 128]
  outputs: 10

# 1,797 images of 8 x 8 pixels; a fifth of them is held out.
data: { block_id: data/digits, split: { val: 0.2 } }

optimizer: { block_id: training/optimizer/adamw, lr: 3.0e-3, weight_decay: 0.01 }
scheduler: { block_id: training/scheduler/warmup_cosine, warmup_steps: 45 }   # one epoch of rising
loss: { block_id: training/loss/cross_entropy }
metrics: [{ block_id: metric/accuracy }]

epochs: 30
batch_size: 32            # 45 updates an epoch; the last batch of each is smaller
determinism_tier: prod    # fixed order of every sum: the same bits again on the same device
seed: 42
