# Handwritten digits with convolutions, batch normalisation and SGD with momentum.
#   scellis train examples/digits_cnn.sml
sml: 1
model: user/examples/digits_cnn

architecture:
  block_id: model/cnn
  widths: [16, 32]        # two stages, each halves the image: 8 x 8, 4 x 4, 2 x 2
  outputs: 10

# The same images, kept as pictures: 1 x 8 x 8.
data: { block_id: data/digits, layout: image, split: { val: 0.2 } }

optimizer: { block_id: training/optimizer/sgd, lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 5.0e-4 }
scheduler: { block_id: training/scheduler/cosine }
loss: { block_id: training/loss/cross_entropy }
metrics: [{ block_id: metric/accuracy }]

epochs: 15
batch_size: 32
determinism_tier: prod
seed: 42
