#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/result.h"
#include "lode/checkpoint/tensor_index.h"
#include "lode/families/model_spec.h"
#include "lode/families/roles.h"
#include "lode/io/read_engine.h"
#include "lode/layout/expert_record.h"
#include "lode/loader/binding.h"
#include "lode/memory/ledger.h"
#include "lode/tensor/tensor.h"

namespace lode::loader {

/// What the matrices outside the routed experts become.
enum class DenseFormat : std::uint8_t {
  kAsStored,
  kInt8,  // plain and FP8 matrices that multiply: int8 with an f32 scale for each row and 128 k
};
/// "as-stored", "int8".
std::string_view name(DenseFormat dense) noexcept;

/// How a load goes about its work; changes bytes of the ring, never of the result.
struct LoadPolicy {
  std::uint32_t workers = 2;    // threads that bring bytes to their places
  std::uint32_t readers = 4;    // threads of the read engine
  std::uint32_t num_slots = 8;  // at most: a plan has no more than its tensors fill
  std::uint64_t slot_bytes = 2 * kMiB;
  io::IoKind io = io::IoKind::kAuto;
  DenseFormat dense = DenseFormat::kAsStored;
  bool movable_experts = false;  // expert banks stay writable, for records that change places
};

/// One tensor of a slab.
struct TensorPlace {
  families::Role role{};
  tensor::Meta meta;
  std::uint64_t offset_bytes = 0;  // in the stage's dense slab
  std::uint64_t bytes = 0;
};

/// Which expert each record of a bank is: [layer][record]. A rank of several keeps a share of the
/// experts, some of them perhaps twice; empty: every expert once, in order.
using ExpertSlots = std::vector<std::vector<std::uint32_t>>;

struct BankPlan {
  layout::ExpertRecord record;
  std::uint64_t num_experts = 0;       // records
  std::vector<std::uint32_t> slots{};  // expert of each record; empty: record e is expert e

  std::uint64_t bytes() const noexcept { return num_experts * record.record_bytes; }
  std::uint64_t used_bytes() const noexcept {
    return num_experts * (record.record_bytes - record.padding_bytes);
  }
  std::size_t expert_of(std::size_t record_idx) const {
    return slots.empty() ? record_idx : slots[record_idx];
  }
};

/// One stage: what its slabs will hold.
struct StagePlan {
  static constexpr std::int32_t kModel = -1;

  std::string name;              // "model", "layer 0", ...
  std::int32_t layer = kModel;   // kModel: embedding, final norm, head
  std::uint64_t slab_bytes = 0;  // of the dense slab, before rounding to pages
  std::vector<TensorPlace> places;
  std::optional<BankPlan> bank;    // routed experts, a slab of their own
  std::uint64_t used_bytes = 0;    // weights, scales and biases
  std::uint64_t mapped_bytes = 0;  // of both slabs: used and padding
  std::uint64_t page_table_bytes = 0;
};

/// The loader's own schedule, as a value: what will be held when, and for what. Small whatever the
/// number of tensors: what is read when is told stage by stage (operation_stream.h).
struct LoadPlan {
  LoadPolicy policy;
  std::vector<StagePlan> stages;  // in the order of execution
  std::vector<io::SourceFile> sources;

  std::uint64_t weight_bytes() const;      // W: all slabs as mapped
  std::uint64_t padding_bytes() const;     // of them
  std::uint64_t page_table_bytes() const;  // of all slabs
  std::uint64_t ring_bytes() const;        // slots
  std::uint64_t stack_bytes() const;       // of the threads of a load, as touched
  /// The most that is held at once, page tables included.
  std::uint64_t peak_bytes() const;

  /// What the ledger will have recorded when `execute` has run, byte for byte: one entry a stage
  /// and a last one, "seal", when the ring has gone. `held_before` is in the ledger already.
  std::vector<memory::StageUse> expected_stages(const memory::TagBytes& held_before = {}) const;

  /// Whether the load fits into what `ledger` has left.
  /// Errors: kOverBudget naming need, have, the largest consumer and the limit that would do.
  Status check_fits(const memory::Ledger& ledger) const;
};

/// Of a plan of all experts keeps those of `slots`.
///
/// Errors: kUsage for slots of other layers than the plan's, or of an expert that a layer has not.
Status keep_experts(LoadPlan& plan, const ExpertSlots& slots);

/// Plans the load of everything that `binding` found, of the experts those of `slots`. Reads no
/// file.
///
/// Errors: kUsage for slots of other layers than the model's, or of an expert that it has not;
///         kUnsupported naming the role and layer where gate and up, or two experts of a layer,
///         have different encodings, or a matrix is in a storage that its place cannot take;
///         kUsage for a policy without threads or with slots too small for a row of panels.
Result<LoadPlan> plan_load(const Binding& binding, const families::ModelSpec& spec,
                           const checkpoint::TensorIndex& index, const LoadPolicy& policy,
                           const ExpertSlots& slots = {});

}  // namespace lode::loader
