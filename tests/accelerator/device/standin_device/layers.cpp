// Ops that torch leaves to a device: convolutions, and the cells of recurrent layers. Each computes with and without data.
#include "standin.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>

namespace standin {
namespace {

using at::Tensor;
using torch::jit::Stack;

std::optional<Tensor> optional(const c10::IValue& value) { return value.toOptional<Tensor>(); }

// (input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void convolution(Stack& stack) {
  stack = {at::convolution(
      stack[0].toTensor(), stack[1].toTensor(), optional(stack[2]), stack[3].toIntVector(), stack[4].toIntVector(),
      stack[5].toIntVector(), stack[6].toBool(), stack[7].toIntVector(), stack[8].toInt())};
}

// (grad_output, input, weight, stride, padding, dilation, transposed, output_padding, groups, output_mask)
void convolution_backward(Stack& stack) {
  const Tensor grad = stack[0].toTensor();
  const auto mask = stack[9].toBoolList();
  const std::vector<int64_t> bias{grad.size(1)};
  auto [input, weight, bias_grad] = at::convolution_backward(
      grad, stack[1].toTensor(), stack[2].toTensor(), at::OptionalIntArrayRef(bias), stack[3].toIntVector(),
      stack[4].toIntVector(), stack[5].toIntVector(), stack[6].toBool(), stack[7].toIntVector(), stack[8].toInt(),
      {mask[0], mask[1], mask[2]});
  stack = {input, weight, bias_grad};
}

Tensor with_bias(const Tensor& gates, const c10::IValue& bias) {
  const std::optional<Tensor> added = optional(bias);
  return added && added->defined() ? gates + *added : gates;
}

// The gates are those of reset, update and the new state: (input_gates, hidden_gates, hx, input_bias, hidden_bias)
void gru_cell(Stack& stack) {
  const auto input = with_bias(stack[0].toTensor(), stack[3]).chunk(3, 1);
  const auto hidden = with_bias(stack[1].toTensor(), stack[4]).chunk(3, 1);
  const Tensor before = stack[2].toTensor();
  const Tensor reset = at::sigmoid(input[0] + hidden[0]), update = at::sigmoid(input[1] + hidden[1]);
  const Tensor fresh = at::tanh(input[2] + reset * hidden[2]);
  stack = {fresh + update * (before - fresh), at::cat({reset, update, fresh, before, hidden[2]}, 1)};
}

// (grad_hy, workspace, has_bias)
void gru_cell_backward(Stack& stack) {
  const Tensor grad = stack[0].toTensor();
  const auto kept = stack[1].toTensor().chunk(5, 1);
  const Tensor &reset = kept[0], &update = kept[1], &fresh = kept[2], &before = kept[3], &hidden = kept[4];
  const Tensor of_fresh = grad * (1 - update) * (1 - fresh * fresh);
  const Tensor of_update = grad * (before - fresh) * update * (1 - update);
  const Tensor of_reset = of_fresh * hidden * reset * (1 - reset);
  const Tensor input = at::cat({of_reset, of_update, of_fresh}, 1);
  const Tensor recurrent = at::cat({of_reset, of_update, of_fresh * reset}, 1);
  const bool bias = stack[2].toBool();
  stack = {input, recurrent, grad * update, bias ? input.sum(0) : Tensor(), bias ? recurrent.sum(0) : Tensor()};
}

// The gates are those of input, forget, cell and output: (input_gates, hidden_gates, cx, input_bias, hidden_bias)
void lstm_cell(Stack& stack) {
  const Tensor gates = with_bias(stack[0].toTensor(), stack[3]) + with_bias(stack[1].toTensor(), stack[4]);
  const auto parts = gates.chunk(4, 1);
  const Tensor input = at::sigmoid(parts[0]), forget = at::sigmoid(parts[1]);
  const Tensor cell = at::tanh(parts[2]), output = at::sigmoid(parts[3]);
  const Tensor after = forget * stack[2].toTensor() + input * cell;
  stack = {output * at::tanh(after), after, at::cat({input, forget, cell, output}, 1)};
}

// (grad_hy, grad_cy, cx, cy, workspace, has_bias)
void lstm_cell_backward(Stack& stack) {
  const std::optional<Tensor> of_hidden = optional(stack[0]), of_cell = optional(stack[1]);
  const Tensor before = stack[2].toTensor(), after = at::tanh(stack[3].toTensor());
  const auto kept = stack[4].toTensor().chunk(4, 1);
  const Tensor &input = kept[0], &forget = kept[1], &cell = kept[2], &output = kept[3];
  const bool has_hidden = of_hidden && of_hidden->defined();
  Tensor grad = of_cell && of_cell->defined() ? *of_cell : before * 0;
  Tensor of_output = before * 0;
  if (has_hidden) {
    grad = grad + *of_hidden * output * (1 - after * after);
    of_output = *of_hidden * after * output * (1 - output);
  }
  const Tensor gates = at::cat(
      {grad * cell * input * (1 - input), grad * before * forget * (1 - forget), grad * input * (1 - cell * cell),
       of_output},
      1);
  const bool bias = stack[5].toBool();
  stack = {gates, grad * forget, bias ? gates.sum(0) : Tensor()};
}

}  // namespace

void add_convolutions(Kernels& kernels) {
  kernels["aten::convolution_overrideable"] = {convolution, convolution};
  kernels["aten::convolution_backward_overrideable"] = {convolution_backward, convolution_backward};
}

void add_cells(Kernels& kernels) {
  kernels["aten::_thnn_fused_gru_cell"] = {gru_cell, gru_cell};
  kernels["aten::_thnn_fused_gru_cell_backward"] = {gru_cell_backward, gru_cell_backward};
  kernels["aten::_thnn_fused_lstm_cell"] = {lstm_cell, lstm_cell};
  kernels["aten::_thnn_fused_lstm_cell_backward_impl"] = {lstm_cell_backward, lstm_cell_backward};
}

}  // namespace standin
