#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/formats/format.h"
#include "lode/io/read_engine.h"
#include "lode/loader/binding.h"
#include "lode/parallel/function_ref.h"
#include "lode/targets/experts.h"
#include "lode/targets/preparer.h"

namespace lode::loader {

/// What has block scales of an expert, and nothing else.
inline constexpr targets::Needs kScaleNeeds{.gate_up_scales = true, .down_scales = true};
/// The numbers of its matrices alone.
inline constexpr targets::Needs kCodeNeeds{.gate_up = true, .down = true};

/// Whether any of them has a scale that its producer prescribes for activations.
bool have_input_scales(const std::vector<ExpertSource>& experts) noexcept;

/// What the experts of a layer are to a preparer of a GPU engine's tensors; `num_experts` is
/// theirs.
///
/// Errors: kUnsupported where they differ in storage, or gate and up share rows of blocks.
Result<targets::ExpertsShape> experts_shape(const std::vector<ExpertSource>& experts);

/// Experts of a layer, by their places in it, and what is to be read of them.
struct WantedExperts {
  const std::vector<ExpertSource>& experts;
  std::span<const std::uint32_t> which;
  const targets::Needs& needs;
};

/// Reads experts into memory, one after another, as preparers want them: rows of codes, of block
/// scales, of biases. The memory is dealt out to as many as it has room for: while one is worked on
/// the next ones' bytes come in.
class ExpertReader {
 public:
  /// What one slot must have for this expert: the same wherever in its blocks it begins.
  static std::uint64_t slot_bytes(const ExpertSource& expert, const targets::Needs& needs);

  /// `memory` is one slot or more, on whole blocks; borrowed.
  ExpertReader(io::ReadEngine& engine, std::span<std::byte> memory)
      : engine_(engine), memory_(memory) {}

  /// Hands each expert to `take`, with its place in `which`; it is gone when that returns. Nobody
  /// else may have reads under way.
  /// Errors: those of the engine and of `take`.
  using Take = parallel::FunctionRef<Status(std::size_t at, const targets::ExpertSource& source)>;
  Status read_each(const WantedExperts& wanted, Take take);

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
  /// An expert that is on its way.
  struct Begun {
    std::vector<Part> parts;
    std::size_t reads = 0;
    Status status;
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
  static targets::ExpertSource source_of(const std::vector<Part>& parts);
  std::span<std::byte> slot(std::uint64_t ticket) const noexcept;
  void deal_out(const WantedExperts& wanted);
  Status read_in_turn(const WantedExperts& wanted, Take take);
  void begin(const ExpertSource& expert, const targets::Needs& needs);
  void wait_for_a_read();
  Result<targets::ExpertSource> take_first();

  io::ReadEngine& engine_;
  std::span<std::byte> memory_;
  std::uint64_t slot_bytes_ = 0;
  std::uint64_t num_slots_ = 1;
  std::deque<Begun> begun_;
  std::uint64_t first_ticket_ = 0;  // of the first that is begun
};

}  // namespace lode::loader
