#include "lode/prepared/compare.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "lode/base/fmt.h"
#include "lode/checkpoint/input_file.h"
#include "lode/io/checksum.h"
#include "lode/layout/panels.h"
#include "lode/loader/engine_stream.h"
#include "lode/loader/execute.h"
#include "lode/loader/stream.h"
#include "lode/prepared/chunk_check.h"

namespace lode::prepared {
namespace {

using loader::StagePlan;

Error other_stages(const Checkpoint& checkpoint) {
  return {.code = Code::kLayoutMismatch,
          .thing = checkpoint.folder.string(),
          .wanted = "the stages that a load of the source has",
          .found = "others",
          .hint = "it was prepared from another checkpoint, or with other settings"};
}

std::string range(std::string_view what, std::uint64_t begin, std::uint64_t end) {
  return begin + 1 == end ? fmt::format("{} {}", what, begin)
                          : fmt::format("{} {} to {}", what, begin, end - 1);
}

// A byte of a tensor in panels: which matrix of a pair, which rows, which k.
std::string place_in_panels(const tensor::Meta& meta, std::uint64_t offset) {
  const bool pair = meta.layout == tensor::Layout::kGateUpPanels;
  const std::uint64_t rows = meta.shape[pair ? 1 : 0];
  const std::uint64_t k = meta.shape[pair ? 2 : 1];
  const auto panels = layout::PanelLayout::make(meta.encoding, rows, k, pair ? 2 : 1);
  LODE_CHECK(panels.has_value(), "an index has tensors that panels hold");
  const std::uint64_t number = offset / panels->panel_bytes();
  const std::uint64_t panel = number / panels->num_matrices();
  if (panel >= panels->panels_per_matrix()) return "scales of the matrix";
  const std::string matrix = !pair ? "" : number % 2 == 0 ? "gate, " : "up, ";
  const std::uint64_t first_row = panel * kernels::kPanelRows;
  const std::uint64_t block = offset % panels->panel_bytes() / panels->shape().super_block_bytes();
  const std::uint64_t first_k = block * kernels::kSuperBlockK;
  return fmt::format(
      "{}{}, {}", matrix,
      range("rows", first_row, std::min<std::uint64_t>(first_row + kernels::kPanelRows, rows)),
      range("k", first_k, std::min<std::uint64_t>(first_k + kernels::kSuperBlockK, k)));
}

std::string place_in_rows(const tensor::Meta& meta, std::uint64_t offset) {
  const std::uint64_t element = offset * 8 / formats::info(meta.encoding.element).bits;
  if (meta.shape.rank() != 2) return fmt::format("number {}", element);
  return fmt::format("row {}, k {}", element / meta.shape[1], element % meta.shape[1]);
}

std::string place_in(const tensor::Meta& meta, std::uint64_t offset) {
  return meta.layout == tensor::Layout::kRowMajor ? place_in_rows(meta, offset)
                                                  : place_in_panels(meta, offset);
}

std::string place_in_record(const loader::BankPlan& bank, std::uint64_t offset) {
  const layout::ExpertRecord& record = bank.record;
  const tensor::Meta gate_up{
      record.gate_up, tensor::Layout::kGateUpPanels, {2, record.intermediate, record.hidden}};
  const tensor::Meta down{
      record.down, tensor::Layout::kPanels, {record.hidden, record.intermediate}};
  const std::uint64_t within = offset % record.record_bytes;
  const std::string expert = fmt::format("expert {}, ", offset / record.record_bytes);
  if (within < record.gate_up_bytes) return expert + place_in(gate_up, within);
  if (within < record.down_offset_bytes + record.down_bytes) {
    return expert + "down, " + place_in(down, within - record.down_offset_bytes);
  }
  return expert + "biases or padding";
}

// A byte of a GPU engine's tensors: which one, which expert, and where in its extents.
std::string place_in_engine_bank(const loader::EngineBankPlan& bank, std::uint64_t offset) {
  std::size_t idx = bank.tensors().size();
  while (idx > 0 && (idx == bank.tensors().size() || bank.offsets_bytes[idx] > offset)) --idx;
  const targets::EngineTensor& tensor = bank.tensors()[idx];
  const std::uint64_t within = offset - bank.offsets_bytes[idx];
  if (within >= tensor.bytes(bank.shape.num_experts)) return "padding";
  std::uint64_t element = within * 8 / formats::info(tensor.dtype).bits;
  std::vector<std::uint64_t> place(tensor.shape.rank());
  for (std::size_t axis = place.size(); axis-- > 0;) {
    place[axis] = element % tensor.shape[axis];
    element /= tensor.shape[axis];
  }
  return fmt::format("{} of expert {}, at [{}]", tensor.name,
                     bank.experts[within / tensor.expert_bytes], fmt::join(place, ", "));
}

const loader::EngineBankPlan& engine_bank_of(const Index& index, const Section& section) {
  const auto bank = std::ranges::find(index.engine_banks, std::size_t{section.stage_idx} - 1,
                                      &loader::EngineBankPlan::layer);
  LODE_CHECK(bank != index.engine_banks.end(), "a section of a bank");
  return *bank;
}

// Compares the sums of what is made again with those of the index.
class CompareSink final : public loader::ChunkSink {
 public:
  explicit CompareSink(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  Status put(const loader::ChunkRun& run) override {
    for (std::size_t at = 0; at < run.bytes.size(); at += kChunkBytes) {
      const auto chunk =
          run.bytes.subspan(at, std::min<std::size_t>(kChunkBytes, run.bytes.size() - at));
      LODE_CHECK(next_chunk_ < checkpoint_.index.chunk_crcs.size(),
                 "a stream of the same stages has the same chunks");
      if (io::crc32c(chunk) != checkpoint_.index.chunk_crcs[next_chunk_]) return differs(chunk);
      ++next_chunk_;
    }
    return {};
  }

 private:
  /// Errors: kCheckFailed always.
  Status differs(std::span<const std::byte> made) const;

  const Checkpoint& checkpoint_;
  std::uint64_t next_chunk_ = 0;
};

Status CompareSink::differs(std::span<const std::byte> made) const {
  const Section& section = section_of(checkpoint_.index, next_chunk_);
  const std::uint64_t offset = (next_chunk_ - section.first_chunk) * kChunkBytes;
  LODE_TRY(const auto file, checkpoint::InputFile::open(checkpoint_.files[section.file_idx].path));
  std::vector<std::byte> stored(made.size());
  LODE_TRY_STATUS(file.read_into(section.file_offset_bytes + offset, stored));
  const auto [here, there] = std::ranges::mismatch(made, stored);
  if (here == made.end()) {
    return Error{.code = Code::kCheckFailed,
                 .thing = section_name(checkpoint_.index, section),
                 .wanted = "the sum of its bytes in the index",
                 .found = "another, though the bytes are those of the source",
                 .where = checkpoint_.folder.string()};
  }
  const std::uint64_t byte = offset + static_cast<std::uint64_t>(here - made.begin());
  return Error{
      .code = Code::kCheckFailed,
      .thing = what_lies_at(checkpoint_.index, section, byte),
      .wanted = fmt::format("{:#04x}, as made from the source", std::to_integer<int>(*here)),
      .found = fmt::format("{:#04x}", std::to_integer<int>(*there)),
      .where = fmt::format("{} at byte {}", checkpoint_.files[section.file_idx].path,
                           section.file_offset_bytes + byte)};
}

bool same_stages(const Index& index, const loader::LoadPlan& plan) {
  // The banks of a GPU engine are compared by themselves: they are of other numbers, perhaps.
  const bool banks = index.engine_banks.empty();
  return std::ranges::equal(index.stages, plan.stages, [&](const StagePlan& a, const StagePlan& b) {
    return a.layer == b.layer && a.slab_bytes == b.slab_bytes &&
           a.places.size() == b.places.size() && a.bank.has_value() == b.bank.has_value() &&
           (!banks ||
            ((!a.bank || a.bank->record == b.bank->record) && a.used_bytes == b.used_bytes));
  });
}

// What the index says of its own making, made of the source again.
Result<loader::EnginePlan> same_engine_plan(const Checkpoint& checkpoint,
                                            const loader::LoadPlan& plan,
                                            const loader::Binding& binding) {
  const Index& index = checkpoint.index;
  LODE_TRY(loader::EnginePlan engine,
           loader::plan_engine(binding, index.choice, plan.policy.workers));
  const bool same = std::ranges::equal(
      engine.banks, index.engine_banks,
      [](const loader::EngineBankPlan& a, const loader::EngineBankPlan& b) {
        return a.layer == b.layer && a.bytes == b.bytes && a.offsets_bytes == b.offsets_bytes &&
               a.shape.encoding == b.shape.encoding;
      });
  if (same) return engine;
  return other_stages(checkpoint);
}

}  // namespace

std::string what_lies_at(const Index& index, const Section& section, std::uint64_t offset_bytes) {
  const StagePlan& stage = index.stages[section.stage_idx];
  if (section.kind == SectionKind::kEngineBank) {
    return fmt::format("{}: {}", section_name(index, section),
                       place_in_engine_bank(engine_bank_of(index, section), offset_bytes));
  }
  if (section.kind == SectionKind::kBank) {
    if (offset_bytes >= stage.bank->bytes()) return "padding of " + stage.name;
    return fmt::format("{}: {}", section_name(index, section),
                       place_in_record(*stage.bank, offset_bytes));
  }
  for (const loader::TensorPlace& place : stage.places) {
    if (offset_bytes < place.offset_bytes) break;
    const std::uint64_t within = offset_bytes - place.offset_bytes;
    if (within >= place.bytes) continue;
    return fmt::format("{} of {}: {}", families::name(place.role), stage.name,
                       place_in(place.meta, within));
  }
  return "padding of " + stage.name;
}

Status compare_with(const Checkpoint& checkpoint, const loader::LoadPlan& plan,
                    const loader::Binding& binding, memory::Ledger& ledger,
                    loader::Progress* progress) {
  if (!same_stages(checkpoint.index, plan)) return other_stages(checkpoint);
  LODE_TRY(const std::unique_ptr<io::ReadEngine> engine, loader::make_engine(plan));
  CompareSink sink(checkpoint);
  if (checkpoint.index.engine_banks.empty()) {
    return loader::stream(plan, binding, {ledger, *engine, sink, progress});
  }
  LODE_TRY(const loader::EnginePlan engine_plan, same_engine_plan(checkpoint, plan, binding));
  loader::LoadPlan dense = plan;
  for (StagePlan& stage : dense.stages) stage.bank.reset();
  LODE_TRY_STATUS(loader::stream(dense, binding, {ledger, *engine, sink, progress}));
  return loader::stream_engine(engine_plan, binding,
                               {ledger, *engine, sink, progress, {}, nullptr});
}

}  // namespace lode::prepared
