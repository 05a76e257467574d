#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "lode/base/fmt.h"
#include "lode/targets/target.h"
#include "tools/docs/markdown.h"
#include "tools/docs/tables.h"

// The tensors of each target, as its preparers name and shape them: of a layer of 8 experts.

namespace lode::docs {
namespace {

using targets::EngineTensor;
using targets::ExpertsShape;

struct Row {
  targets::Target target{};
  EngineTensor tensor;
  bool only_with_biases = false;
  std::string from;

  bool is_alike(const Row& other) const {
    return target == other.target && tensor.name == other.tensor.name &&
           tensor.dtype == other.tensor.dtype && tensor.shape == other.tensor.shape &&
           only_with_biases == other.only_with_biases;
  }
};

// Of an encoding that the route takes; divisors are multipliers by then.
std::optional<ExpertsShape> shape_for(const targets::Route& route) {
  for (const formats::EncodingInfo& info : formats::encoding_table()) {
    const formats::Encoding& encoding = info.encoding;
    if (encoding.tensor_scale == formats::TensorScale::kDivisor || !route.takes(encoding)) continue;
    ExpertsShape shape;
    shape.num_experts = 8;
    shape.hidden = 2048;
    shape.intermediate = 512;
    shape.input_scales = true;
    shape.encoding = encoding;
    shape.scale_format = encoding.scale;
    shape.scales_are_exponents = encoding.scale == formats::Format::kE8m0;
    return shape;
  }
  return std::nullopt;
}

std::vector<EngineTensor> tensors_of(const targets::Route& route, const ExpertsShape& shape) {
  const auto preparer = route.make(shape, {});
  return preparer ? (*preparer)->tensors() : std::vector<EngineTensor>{};
}

bool has(const std::vector<EngineTensor>& tensors, const std::string& name) {
  return std::ranges::find(tensors, name, &EngineTensor::name) != tensors.end();
}

void add(std::vector<Row>& rows, Row row) {
  const auto same = std::ranges::find_if(rows, [&](const Row& it) { return it.is_alike(row); });
  if (same == rows.end()) return rows.push_back(std::move(row));
  if (!same->from.ends_with(row.from)) same->from += ", " + row.from;
}

std::vector<Row> all_rows() {
  std::vector<Row> rows;
  for (const targets::Route& route : targets::route_table()) {
    auto shape = shape_for(route);
    if (!shape) continue;
    const std::vector<EngineTensor> bare = tensors_of(route, *shape);
    for (const EngineTensor& tensor : bare)
      add(rows, {route.target, tensor, false, std::string(route.from)});
    shape->bias = true;
    for (const EngineTensor& tensor : tensors_of(route, *shape)) {
      if (!has(bare, tensor.name)) add(rows, {route.target, tensor, true, std::string(route.from)});
    }
  }
  std::ranges::stable_sort(rows, {}, &Row::target);
  return rows;
}

std::string text_of(const tensor::Shape& shape) {
  std::string text;
  for (const std::uint64_t extent : shape.extents())
    text += fmt::format("{}{}", text.empty() ? "" : ", ", extent);
  return "[" + text + "]";
}

}  // namespace

std::string engine_tensor_rows() {
  Markdown table({"target", "tensor", "dtype", "shape", "from"});
  for (const Row& row : all_rows()) {
    table.add({code(targets::name(row.target)), code(row.tensor.name),
               std::string(formats::info(row.tensor.dtype).safetensors_name),
               text_of(row.tensor.shape),
               row.from + (row.only_with_biases ? "; only where experts have biases" : "")});
  }
  return table.text();
}

}  // namespace lode::docs
