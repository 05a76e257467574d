#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/formats/format.h"
#include "lode/io/read_engine.h"
#include "lode/loader/binding.h"
#include "lode/targets/experts.h"
#include "lode/targets/preparer.h"

namespace lode::loader {

/// What has block scales of an expert, and nothing else.
inline constexpr targets::Needs kScaleNeeds{.gate_up_scales = true, .down_scales = true};
/// The numbers of its matrices alone.
inline constexpr targets::Needs kCodeNeeds{.gate_up = true, .down = true};

/// What the experts of a layer are to a preparer of a GPU engine's tensors; `num_experts` is
/// theirs.
///
/// Errors: kUnsupported where they differ in storage, or gate and up share rows of blocks.
Result<targets::ExpertsShape> experts_shape(const std::vector<ExpertSource>& experts);

/// Reads experts into memory, one after another, as preparers want them: rows of codes, of block
/// scales, of biases. With two slots the next expert's bytes come in while one is worked on.
class ExpertReader {
 public:
  /// What one slot must have for this expert.
  static std::uint64_t slot_bytes(const ExpertSource& expert, const targets::Needs& needs);

  /// `memory` is one or two slots, on whole blocks; borrowed.
  ExpertReader(io::ReadEngine& engine, std::span<std::byte> memory, std::size_t num_slots);
  ~ExpertReader();
  ExpertReader(const ExpertReader&) = delete;
  ExpertReader& operator=(const ExpertReader&) = delete;

  std::size_t num_slots() const noexcept { return slots_.size(); }

  /// Begins to read what `needs` says into the next slot. What was taken before the last `take`, or
  /// with one slot by it, is gone then. Nothing else may be begun.
  void begin(const ExpertSource& expert, const targets::Needs& needs);
  /// Waits for the expert that was begun.
  /// Errors: those of the engine.
  Result<targets::ExpertSource> take();

 private:
  /// The rows of one matrix in a file: as Region says, with what a number is.
  struct StoredRows {
    Region region;
    std::uint64_t rows = 0;
    std::uint64_t units = 0;       // of a row
    std::uint64_t unit_bytes = 0;  // as stored
    formats::Format stored{};
    formats::Format wanted{};

    std::uint64_t end_bytes() const noexcept;  // in the file
    bool lies_as_wanted() const noexcept {
      return region.order == Order::kRowsFirst && stored == wanted;
    }
    std::uint64_t wanted_row_bytes() const noexcept;
  };
  /// One member of targets::ExpertSource.
  struct Part {
    layout::MatrixRows targets::ExpertSource::*member = nullptr;
    std::uint32_t num_halves = 0;
    std::array<StoredRows, 2> halves;
    std::array<std::byte*, 2> stored{};  // the first byte of each half, in the slot
    std::array<std::byte*, 2> wanted{};  // where what must be turned goes
  };
  /// Deals out the bytes of a slot; without one it only counts.
  class Dealer;

  static std::vector<Part> parts_of(const ExpertSource& expert, const targets::Needs& needs);
  static StoredRows codes_of(const MatrixSource& matrix);
  static StoredRows scales_of(const MatrixSource& matrix);
  static StoredRows bias_of(const VectorSource& vector);
  /// Some units of k of one row.
  struct TurnedUnits {
    const StoredRows& rows;
    std::uint64_t row = 0;
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };
  static void turn(const StoredRows& rows, const std::byte* stored, std::byte* wanted);
  static void turn_units(const TurnedUnits& units, const std::byte* stored, std::byte* wanted);
  void drain();

  io::ReadEngine& engine_;
  std::vector<std::span<std::byte>> slots_;
  std::size_t next_slot_ = 0;
  std::vector<Part> parts_;  // of what was begun
  std::size_t reads_under_way_ = 0;
};

}  // namespace lode::loader
