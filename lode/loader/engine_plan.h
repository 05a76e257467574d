#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lode/base/bytes.h"
#include "lode/base/result.h"
#include "lode/loader/binding.h"
#include "lode/memory/carver.h"
#include "lode/targets/target.h"

namespace lode::loader {

/// More experts than any layer has.
inline constexpr std::uint64_t kMostExperts = 1U << 20;

/// For whom experts are prepared, and which of them.
struct EngineChoice {
  targets::Target target = targets::Target::kCpu;
  targets::Options options{};
  std::vector<std::uint32_t>
      experts{};  // of every layer, by their numbers in the model; empty: all
  // Where they are those of one rank of several: which; else rank 0 of 1.
  std::uint32_t ranks = 1;
  std::uint32_t rank = 0;

  bool is_cpu() const noexcept { return target == targets::Target::kCpu; }
};

/// Memory for experts as they are stored, and for what they become on the way: one that fits is
/// read as a whole; of others windows come in, each with the units that are made of it. Nothing of
/// this changes a byte of the result.
struct ExpertScratch {
  std::uint64_t whole_bytes = 32 * kMiB;   // at most so much of an expert is held as a whole
  std::uint64_t window_bytes = 24 * kMiB;  // of larger ones, as far as one unit allows
};

/// How one tensor is made of experts that are not held as a whole.
struct TensorWindows {
  std::uint64_t units = 0;       // at once; 0: of a whole expert
  std::uint64_t scale_rows = 0;  // at once, where scales come first (targets::Refiner)

  bool is_whole() const noexcept { return units == 0 && scale_rows == 0; }
};

/// The experts of one layer as the tensors of a GPU engine, one behind another:
///
///   | w13_weight [E, ...] | w13_weight_scale [E, ...] | w2_weight [E, ...] | ...
///
/// Each begins on a multiple of 4 KiB, so that it can be mapped; what is between is zero.
struct EngineBankPlan {
  static constexpr std::uint64_t kAlignment = 4 * kKiB;

  std::size_t layer = 0;
  targets::ExpertsShape shape;
  std::vector<std::uint32_t> experts;  // their numbers in the model
  std::shared_ptr<const targets::Preparer> preparer;
  std::vector<std::uint64_t> offsets_bytes;  // of preparer->tensors()
  std::uint64_t bytes = 0;                   // of all of it, in whole pages
  std::uint64_t padding_bytes = 0;           // of it, what holds nothing of the checkpoint
  // How it is read, where it is: of each tensor, and rows at once where experts are measured
  // before.
  std::vector<TensorWindows> windows{};
  std::uint64_t measured_rows = 0;  // 0: whole experts

  const std::vector<targets::EngineTensor>& tensors() const noexcept { return preparer->tensors(); }
};

/// The bank of experts of this shape.
/// Errors: those of make_preparer.
Result<EngineBankPlan> plan_engine_bank(const targets::ExpertsShape& shape,
                                        const EngineChoice& choice,
                                        std::vector<std::uint32_t> experts);

/// What the preparation of all layers' experts for one target holds and makes.
struct EnginePlan {
  std::vector<EngineBankPlan> banks;  // of the layers that have experts, in their order
  std::uint64_t slot_bytes = 0;       // of the reader
  std::uint32_t num_slots = 1;
  std::uint64_t window_bytes = 0;   // of the reader, where experts come in windows
  std::uint64_t refined_bytes = 0;  // of one expert that is quantised on the way; 0: none is
  std::uint64_t kept_numbers = 0;   // of all experts of a bank: Preparer::kept_numbers
  std::uint64_t unit_bytes = 0;     // the largest unit of any tensor
  std::uint32_t threads = 2;

  std::uint64_t bytes() const noexcept;
  std::uint64_t padding_bytes() const noexcept;
  /// Of the reader, all of it.
  std::uint64_t slots_bytes() const noexcept {
    return std::max(num_slots * slot_bytes, window_bytes);
  }
  /// As a Carver lays them out.
  std::uint64_t kept_bytes() const noexcept {
    return align_up(kept_numbers * sizeof(float), memory::Carver::kLineBytes);
  }
  /// Beside the output: slots, and what is being made.
  std::uint64_t staging_bytes() const noexcept;
};

/// Errors: kUnsupported naming layer and storage; kUsage for experts that the model has not.
Result<EnginePlan> plan_engine(const Binding& binding, const EngineChoice& choice,
                               std::uint32_t threads, const ExpertScratch& scratch = {});

}  // namespace lode::loader
