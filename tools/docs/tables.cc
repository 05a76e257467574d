#include "tools/docs/tables.h"

#include <array>

#include "lode/base/fmt.h"
#include "lode/base/result.h"
#include "lode/checkpoint/quant_config.h"
#include "lode/formats/format.h"
#include "lode/memory/ledger.h"
#include "lode/tensor/tensor.h"
#include "tools/docs/markdown.h"

namespace lode::docs {
namespace {

std::string yes_or_no(bool value) { return value ? "yes" : "no"; }

}  // namespace

std::string format_rows() {
  Markdown table({"format", "in safetensors", "bits", "largest", "infinity", "NaN", "fixed by"});
  for (const formats::FormatInfo& row : formats::format_table()) {
    table.add({code(row.name), code(row.safetensors_name), fmt::format("{}", row.bits),
               fmt::format("{}", row.max), yes_or_no(row.has_inf), yes_or_no(row.has_nan),
               std::string(row.source)});
  }
  return table.text();
}

std::string encoding_rows() {
  Markdown table({"encoding", "what it is", "bits a weight"});
  for (const formats::EncodingInfo& row : formats::encoding_table()) {
    const formats::Encoding& encoding = row.encoding;
    double bits = formats::info(encoding.element).bits;
    if (encoding.has_scale && encoding.block_k != formats::kWhole) {
      bits += formats::info(encoding.scale).bits /
              (static_cast<double>(encoding.block_rows) * encoding.block_k);
    }
    table.add({code(row.name), std::string(row.meaning), fmt::format("{:.4g}", bits)});
  }
  return table.text();
}

std::string layout_rows() {
  using tensor::Layout;
  Markdown table({"layout", "order of the bytes"});
  for (const Layout layout : {Layout::kRowMajor, Layout::kPanels, Layout::kGateUpPanels}) {
    table.add({code(tensor::name(layout)), std::string(tensor::meaning(layout))});
  }
  return table.text();
}

std::string code_rows() {
  Markdown table({"exit status", "code", "means", "HTTP", "Python"});
  table.add({"0", "", "done", "200", ""});
  for (const CodeInfo& row : code_table()) {
    table.add({fmt::format("{}", row.exit_status), code(row.name), std::string(row.meaning),
               fmt::format("{}", row.http_status), code(row.python_exception)});
  }
  return table.text();
}

std::string tag_rows() {
  Markdown table({"tag", "what for"});
  for (std::size_t tag = 0; tag < memory::kNumTags; ++tag) {
    table.add({code(memory::name(static_cast<memory::Tag>(tag))),
               std::string(memory::meaning(static_cast<memory::Tag>(tag)))});
  }
  return table.text();
}

std::string dialect_rows() {
  Markdown table({"`quant_method`", "keys that list what is not quantised"});
  for (const checkpoint::DialectInfo& row : checkpoint::dialect_table()) {
    if (row.quant_method.empty()) continue;
    std::string keys;
    for (const char letter : row.exclude_keys) {
      keys += letter == ',' ? std::string("`, `") : std::string(1, letter);
    }
    table.add({code(row.quant_method), code(keys)});
  }
  return table.text();
}

std::span<const Print> prints() noexcept {
  static constexpr std::array kPrints = {
      Print{"formats", format_rows},
      Print{"encodings", encoding_rows},
      Print{"layouts", layout_rows},
      Print{"codes", code_rows},
      Print{"tags", tag_rows},
      Print{"dialects", dialect_rows},
      Print{"families", family_rows},
      Print{"roles", role_rows},
      Print{"targets", target_rows},
      Print{"routes", route_rows},
      Print{"engine-tensors", engine_tensor_rows},
      Print{"transforms", transform_rows},
      Print{"upstream", upstream_rows},
      Print{"commands", command_rows},
      Print{"command-help", command_help},
  };
  return kPrints;
}

}  // namespace lode::docs
