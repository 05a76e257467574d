#include "lode/prepared/engine_records.h"

#include <algorithm>
#include <utility>

#include "lode/base/fmt.h"
#include "lode/layout/expert_record.h"
#include "lode/prepared/index_records.h"

namespace lode::prepared {
namespace {

constexpr std::size_t kTargetField = 32;
constexpr std::size_t kWordField = 16;
constexpr std::uint64_t kMostExtent = std::uint64_t{1} << 32;
constexpr std::uint64_t kMostBankBytes = std::uint64_t{1} << 46;

void put_flag(bool flag, RecordWriter& out) { out.number(static_cast<std::uint8_t>(flag ? 1 : 0)); }

Result<bool> read_flag(RecordReader& in) {
  const auto value = in.number<std::uint8_t>();
  if (value > 1) return unknown("a flag", fmt::format("{}", value));
  return value == 1;
}

Result<loader::EngineBankPlan> read_engine_bank(RecordReader& in,
                                                const loader::EngineChoice& choice) {
  const std::size_t begin = in.at();
  targets::ExpertsShape shape;
  const auto layer = in.number<std::uint64_t>();
  shape.hidden = in.number<std::uint64_t>();
  shape.intermediate = in.number<std::uint64_t>();
  shape.num_experts = in.number<std::uint64_t>();
  LODE_TRY(shape.encoding, read_encoding(in));
  LODE_TRY(shape.scale_format, read_format(in));
  LODE_TRY(shape.bias_format, read_format(in));
  LODE_TRY(shape.model_format, read_format(in));
  LODE_TRY(shape.gated, read_flag(in));
  LODE_TRY(shape.rows_in_turn, read_flag(in));
  LODE_TRY(shape.bias, read_flag(in));
  LODE_TRY(shape.input_scales, read_flag(in));
  const auto bytes = in.number<std::uint64_t>();
  LODE_TRY(shape.scales_are_exponents, read_flag(in));
  in.skip(kEngineBankBytes - (in.at() - begin));
  const bool possible = shape.hidden > 0 && shape.hidden < kMostExtent && shape.intermediate > 0 &&
                        shape.intermediate < kMostExtent && shape.num_experts > 0 &&
                        bytes <= kMostBankBytes && shape.num_experts <= loader::kMostExperts;
  const std::string thing = fmt::format("experts of layer {}", layer);
  if (!possible) return damaged(thing, "extents", "none that can be");
  std::vector<std::uint32_t> experts = choice.experts;
  for (std::uint32_t i = 0; choice.experts.empty() && i < shape.num_experts; ++i) {
    experts.push_back(i);
  }
  if (experts.size() != shape.num_experts) {
    return damaged(thing, fmt::format("{} experts", experts.size()),
                   fmt::format("{}", shape.num_experts));
  }
  LODE_TRY(loader::EngineBankPlan bank,
           loader::plan_engine_bank(shape, choice, std::move(experts)));
  bank.layer = layer;
  if (bank.bytes == bytes) return bank;
  return damaged(thing, fmt::format("{} bytes, as its tensors make", bank.bytes),
                 fmt::format("{}", bytes));
}

}  // namespace

void put_choice(const loader::EngineChoice& choice, RecordWriter& out) {
  const std::size_t begin = out.size();
  out.text(targets::name(choice.target), kTargetField);
  out.text(choice.options.flashinfer, kWordField);
  out.text(choice.options.online, kWordField);
  put_flag(choice.options.fp8_activations, out);
  out.number(choice.ranks);
  out.number(choice.rank);
  out.fill_to(begin + kChoiceBytes);
  for (const std::uint32_t expert : choice.experts) out.number(expert);
}

Result<loader::EngineChoice> read_choice(RecordReader& in, std::uint32_t num_experts) {
  const std::size_t begin = in.at();
  loader::EngineChoice choice;
  const std::string_view name = in.text(kTargetField);
  const auto target = targets::target_by_name(name);
  if (!target || *target == targets::Target::kCpu) return unknown("a target", name);
  choice.target = *target;
  choice.options.flashinfer = in.text(kWordField);
  choice.options.online = in.text(kWordField);
  LODE_TRY(choice.options.fp8_activations, read_flag(in));
  choice.ranks = std::max(in.number<std::uint32_t>(), std::uint32_t{1});  // 0 before they were kept
  choice.rank = in.number<std::uint32_t>();
  if (choice.rank >= choice.ranks) {
    return damaged("the choice of experts", fmt::format("a rank of {}", choice.ranks),
                   fmt::format("{}", choice.rank));
  }
  in.skip(kChoiceBytes - (in.at() - begin));
  for (std::uint32_t i = 0; i < num_experts; ++i) {
    choice.experts.push_back(in.number<std::uint32_t>());
  }
  return choice;
}

void put_engine_bank(const loader::EngineBankPlan& bank, RecordWriter& out) {
  const std::size_t begin = out.size();
  const targets::ExpertsShape& shape = bank.shape;
  out.number(std::uint64_t{bank.layer});
  out.number(shape.hidden);
  out.number(shape.intermediate);
  out.number(shape.num_experts);
  put_encoding(shape.encoding, out);
  for (const formats::Format format : {shape.scale_format, shape.bias_format, shape.model_format}) {
    out.text(formats::info(format).name, kFormatField);
  }
  for (const bool flag : {shape.gated, shape.rows_in_turn, shape.bias, shape.input_scales}) {
    put_flag(flag, out);
  }
  out.number(bank.bytes);
  put_flag(shape.scales_are_exponents, out);
  out.fill_to(begin + kEngineBankBytes);
}

Result<std::vector<loader::EngineBankPlan>> read_engine_banks(RecordReader& in,
                                                              std::uint32_t num_banks,
                                                              const Index& index) {
  std::vector<loader::EngineBankPlan> banks;
  for (std::uint32_t i = 0; i < num_banks; ++i) {
    LODE_TRY(loader::EngineBankPlan bank, read_engine_bank(in, index.choice));
    const bool follows = banks.empty() || banks.back().layer < bank.layer;
    if (!follows || bank.layer + 1 >= index.stages.size() || !index.stages[bank.layer + 1].bank) {
      return damaged(fmt::format("experts of layer {}", bank.layer), "a layer with experts",
                     "another");
    }
    LODE_TRY(const loader::BankPlan restored, restored_bank(bank));
    const loader::BankPlan& said = *index.stages[bank.layer + 1].bank;
    if (restored.record != said.record || restored.num_experts != said.num_experts) {
      return damaged(fmt::format("experts of layer {}", bank.layer),
                     "records of what the engine's tensors hold", "others");
    }
    banks.push_back(std::move(bank));
  }
  return banks;
}

Result<loader::BankPlan> restored_bank(const loader::EngineBankPlan& bank) {
  formats::Encoding encoding = bank.preparer->restored_encoding();
  if (encoding.has_scale && encoding.element == formats::Format::kE4m3) {
    encoding.scale = formats::Format::kF32;  // as the loader has it
  }
  const targets::ExpertsShape& shape = bank.shape;
  const auto record =
      layout::make_expert_record(shape.hidden, shape.intermediate, encoding, encoding, shape.bias);
  if (record) return loader::BankPlan{*record, shape.num_experts};
  return Error{.code = Code::kUnsupported,
               .thing = fmt::format("experts of layer {}", bank.layer),
               .wanted = "numbers that panels hold",
               .found = std::string(formats::name(encoding))};
}

}  // namespace lode::prepared
