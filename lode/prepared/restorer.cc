#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/io/read_engine.h"
#include "lode/layout/panels.h"
#include "lode/layout/scatter.h"
#include "lode/loader/weight_set_builder.h"
#include "lode/parallel/thread_pool.h"
#include "lode/prepared/stage_maker.h"

namespace lode::prepared {
namespace {

using layout::PanelLayout;
using loader::EngineBankPlan;
using targets::Matrix;

constexpr std::uint64_t kPieceBytes = 2 * kMiB;  // of a dense slab, read at once

/// Brings matrices of one expert from an engine's tensors to panels, 16 rows at a time.
class ExpertRestorer {
 public:
  ExpertRestorer(const EngineBankPlan& bank, const layout::ExpertRecord& record,
                 const targets::PreparedExpert& expert, std::span<std::byte> out)
      : bank_(bank), record_(record), expert_(expert), out_(out) {}

  void run(parallel::ThreadPool& pool) {
    const std::uint64_t hidden = record_.hidden;
    const std::uint64_t intermediate = record_.intermediate;
    const auto gate_up = PanelLayout::make(record_.gate_up, intermediate, hidden, 2);
    const auto down = PanelLayout::make(record_.down, hidden, intermediate, 1);
    LODE_CHECK(gate_up && down, "a record of panels");
    restore(pool, Matrix::kGate, *gate_up, out_.first(record_.gate_up_bytes));
    restore(pool, Matrix::kUp, *gate_up, out_.first(record_.gate_up_bytes));
    restore(pool, Matrix::kDown, *down,
            out_.subspan(record_.down_offset_bytes, record_.down_bytes));
    if (!record_.bias) return;
    restore_bias(Matrix::kGate, intermediate, record_.gate_bias_offset_bytes);
    restore_bias(Matrix::kUp, intermediate, record_.up_bias_offset_bytes);
    restore_bias(Matrix::kDown, hidden, record_.down_bias_offset_bytes);
  }

 private:
  void restore(parallel::ThreadPool& pool, Matrix matrix, const PanelLayout& panels,
               std::span<std::byte> out) {
    const std::uint32_t number = matrix == Matrix::kUp ? 1 : 0;
    pool.run(panels.panels_per_matrix(),
             [&](std::size_t panel, std::size_t) { restore_panel(matrix, panels, panel, out); });
    if (!panels.has_matrix_scales()) return;
    const float scale = bank_.preparer->restore_scale(matrix, expert_);
    std::memcpy(out.subspan(panels.matrix_scale_offset(number)).data(), &scale, sizeof scale);
  }

  void restore_panel(Matrix matrix, const PanelLayout& panels, std::uint64_t panel,
                     std::span<std::byte> out) const {
    const std::uint64_t first = panel * kernels::kPanelRows;
    const std::uint64_t rows = std::min<std::uint64_t>(kernels::kPanelRows, panels.rows() - first);
    const layout::PanelTile tile{matrix == Matrix::kUp ? 1U : 0U, first, first + rows, 0,
                                 panels.k()};
    const formats::Encoding stored = bank_.preparer->restored_encoding();
    const std::uint64_t row_bytes = formats::row_bytes(stored, panels.k());
    std::vector<std::byte> codes(rows * row_bytes);
    for (std::uint64_t row = 0; row < rows; ++row) {
      bank_.preparer->restore_codes(matrix, first + row, expert_,
                                    std::span(codes).subspan(row * row_bytes, row_bytes));
    }
    layout::scatter_codes(panels, tile, {.bytes = codes, .outer_stride_bytes = row_bytes}, out);
    if (stored.has_scale) restore_scales(matrix, panels, tile, out);
  }

  // The rows of blocks that the tile's rows are in.
  void restore_scales(Matrix matrix, const PanelLayout& panels, const layout::PanelTile& tile,
                      std::span<std::byte> out) const {
    const formats::Encoding stored = bank_.preparer->restored_encoding();
    const std::uint64_t block = stored.block_rows;
    const std::uint64_t first = block == formats::kWhole ? 0 : tile.row_begin / block;
    const std::uint64_t last = block == formats::kWhole ? 0 : (tile.row_end - 1) / block;
    const std::uint64_t row_bytes =
        formats::scale_columns(stored, panels.k()) * formats::info(stored.scale).bits / 8;
    std::vector<std::byte> scales((last - first + 1) * row_bytes);
    for (std::uint64_t row = first; row <= last; ++row) {
      bank_.preparer->restore_scales(
          matrix, row, expert_, std::span(scales).subspan((row - first) * row_bytes, row_bytes));
    }
    // That they are finite was looked at when they were prepared.
    static_cast<void>(layout::scatter_scales(panels, tile,
                                             {.bytes = scales,
                                              .outer_stride_bytes = row_bytes,
                                              .format = stored.scale,
                                              .first_row = first},
                                             out));
  }

  void restore_bias(Matrix matrix, std::uint64_t count, std::uint64_t offset_bytes) const {
    for (std::uint64_t row = 0; row < count; ++row) {
      const float value = bank_.preparer->restore_bias(matrix, row, expert_);
      std::memcpy(out_.subspan(offset_bytes + row * sizeof value).data(), &value, sizeof value);
    }
  }

  const EngineBankPlan& bank_;
  const layout::ExpertRecord& record_;
  const targets::PreparedExpert& expert_;
  std::span<std::byte> out_;
};

class Restorer final : public StageMaker {
 public:
  explicit Restorer(const StartParts& parts)
      : parts_(parts), builder_(parts.plan), pool_(parts.plan.policy.workers) {}

  Status begin(std::span<std::byte> staging) override {
    staging_ = staging;
    const loader::LoadPolicy& policy = parts_.plan.policy;
    LODE_TRY(engine_, io::make_read_engine(parts_.plan.sources,
                                           {.kind = policy.io, .num_threads = policy.readers}));
    return {};
  }
  Status make(std::size_t stage_idx) override;
  Status end() override { return engine_->finish(); }
  Result<loader::WeightSet> weights() override { return std::move(builder_).finish(); }

 private:
  struct Wanted {
    std::uint64_t offset_bytes = 0;  // in the section
    std::span<std::byte> out;
  };
  const Section& section_of(SectionKind kind, std::size_t stage_idx) const;
  Status read(const Section& section, std::span<const Wanted> wanted);
  Status read_dense(std::size_t stage_idx, std::span<std::byte> slab);
  Status restore(const EngineBankPlan& bank, const loader::BankPlan& to, std::span<std::byte> slab);
  Result<targets::PreparedExpert> read_expert(const EngineBankPlan& bank, std::uint64_t idx);

  StartParts parts_;
  std::span<std::byte> staging_;
  loader::WeightSetBuilder builder_;
  parallel::ThreadPool pool_;
  std::unique_ptr<io::ReadEngine> engine_;
};

const Section& Restorer::section_of(SectionKind kind, std::size_t stage_idx) const {
  for (const Section& section : parts_.checkpoint.index.sections) {
    if (section.kind == kind && section.stage_idx == stage_idx) return section;
  }
  LODE_CHECK(false, "an index has the sections of its stages");
  return parts_.checkpoint.index.sections.front();
}

// All of it is waited for, whatever comes.
Status Restorer::read(const Section& section, std::span<const Wanted> wanted) {
  for (const Wanted& one : wanted) {
    engine_->submit({.file_id = section.file_idx,
                     .offset_bytes = section.file_offset_bytes + one.offset_bytes,
                     .out = one.out});
    parts_.progress.read_bytes.fetch_add(one.out.size(), std::memory_order_relaxed);
  }
  Status first;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    io::ReadCompletion done = engine_->wait();
    if (!done.status && first) first = std::move(done.status);
  }
  return first;
}

Status Restorer::read_dense(std::size_t stage_idx, std::span<std::byte> slab) {
  if (slab.empty()) return {};
  const Section& section = section_of(SectionKind::kDense, stage_idx);
  for (std::uint64_t at = 0; at < slab.size(); at += kPieceBytes) {
    const std::uint64_t bytes = std::min<std::uint64_t>(kPieceBytes, slab.size() - at);
    const Wanted wanted{at, slab.subspan(at, bytes)};
    LODE_TRY_STATUS(read(section, {&wanted, 1}));
  }
  return {};
}

Result<targets::PreparedExpert> Restorer::read_expert(const EngineBankPlan& bank,
                                                      std::uint64_t idx) {
  std::vector<Wanted> wanted;
  targets::PreparedExpert expert;
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < bank.tensors().size(); ++i) {
    const std::uint64_t bytes = bank.tensors()[i].expert_bytes;
    const std::span<std::byte> out = staging_.subspan(used, bytes);
    wanted.push_back({bank.offsets_bytes[i] + idx * bytes, out});
    expert.emplace_back(out);
    used += align_up(bytes, std::uint64_t{kernels::kLineBytes});
  }
  LODE_TRY_STATUS(read(section_of(SectionKind::kEngineBank, bank.layer + 1), wanted));
  return expert;
}

Status Restorer::restore(const EngineBankPlan& bank, const loader::BankPlan& to,
                         std::span<std::byte> slab) {
  for (std::uint64_t idx = 0; idx < to.num_experts; ++idx) {
    if (parts_.progress.cancel.load(std::memory_order_relaxed)) {
      return Error{.code = Code::kInterrupted, .thing = "the start"};
    }
    LODE_TRY(const targets::PreparedExpert expert, read_expert(bank, to.expert_of(idx)));
    const std::span<std::byte> out =
        slab.subspan(idx * to.record.record_bytes, to.record.record_bytes);
    ExpertRestorer(bank, to.record, expert, out).run(pool_);
    parts_.progress.finished_bytes.fetch_add(out.size(), std::memory_order_relaxed);
  }
  return {};
}

Status Restorer::make(std::size_t stage_idx) {
  const loader::StagePlan& stage = parts_.plan.stages[stage_idx];
  LODE_TRY(const loader::WeightSetBuilder::Slabs slabs, builder_.make_slabs(parts_.ledger, stage));
  LODE_TRY_STATUS(read_dense(stage_idx, slabs.dense));
  if (!stage.bank) return {};
  for (const EngineBankPlan& bank : parts_.checkpoint.index.engine_banks) {
    if (bank.layer + 1 == stage_idx) return restore(bank, *stage.bank, slabs.bank);
  }
  return {};
}

}  // namespace

std::uint64_t restorer_bytes(const Index& index) {
  std::uint64_t most = 0;
  for (const EngineBankPlan& bank : index.engine_banks) {
    std::uint64_t bytes = 0;
    for (const targets::EngineTensor& tensor : bank.tensors()) {
      bytes += align_up(tensor.expert_bytes, std::uint64_t{kernels::kLineBytes});
    }
    most = std::max(most, bytes);
  }
  return most;
}

std::unique_ptr<StageMaker> make_restorer(const StartParts& parts) {
  return std::make_unique<Restorer>(parts);
}

}  // namespace lode::prepared
