#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lode/base/range.h"
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
inline constexpr targets::Needs kGateUpNeeds{.gate_up = true};
inline constexpr targets::Needs kDownNeeds{.down = true};

/// Whether any of them has a scale that its producer prescribes for activations.
bool have_input_scales(const std::vector<ExpertSource>& experts) noexcept;

/// What the experts of a layer are to a preparer of a GPU engine's tensors; `num_experts` is
/// theirs.
///
/// Errors: kUnsupported where they differ in storage, or gate and up share rows of blocks.
Result<targets::ExpertsShape> experts_shape(const std::vector<ExpertSource>& experts);

/// What is to be read of an expert, by its place in its layer; of codes a window.
struct WantedExpert {
  std::uint32_t expert = 0;
  targets::Needs needs;
  targets::SourceWindow window{};
};

/// Experts of a layer, one after another.
struct WantedExperts {
  const std::vector<ExpertSource>& experts;
  std::span<const WantedExpert> which;
};

/// Reads experts into memory, one after another, as preparers want them: rows of codes, of block
/// scales, of biases. The memory is dealt out to as many as it has room for: while one is worked on
/// the next ones' bytes come in.
///
/// Of a window that has only a part of each line of the file, lines pass through small pieces of
/// memory, and what is wanted of them is gathered.
class ExpertReader {
 public:
  /// What one slot must have for this expert: the same wherever in its blocks it begins.
  static std::uint64_t slot_bytes(const ExpertSource& expert, const targets::Needs& needs,
                                  const targets::SourceWindow& window = {});

  /// `memory` is one slot or more, on whole blocks; borrowed.
  ExpertReader(io::ReadEngine& engine, std::span<std::byte> memory)
      : engine_(engine), memory_(memory) {}

  /// Hands each expert to `take`, with its place in `which`; it is gone when that returns. Nobody
  /// else may have reads under way.
  /// Errors: those of the engine and of `take`.
  using Take = parallel::FunctionRef<Status(std::size_t at, const targets::ExpertSource& source)>;
  Status read_each(const WantedExperts& wanted, Take take);

 private:
  /// The rows of one matrix in a file, or a window of them: as Region says, with what a number is.
  struct StoredRows {
    Region region;
    std::uint64_t rows = 0;
    std::uint64_t units = 0;       // of a row
    std::uint64_t unit_bytes = 0;  // as stored
    formats::Format stored{};
    formats::Format wanted{};
    // Of the whole matrix, and where the window begins.
    std::uint64_t all_rows = 0;
    std::uint64_t all_units = 0;
    std::uint64_t first_row = 0;
    std::uint64_t first_unit = 0;

    bool empty() const noexcept { return rows == 0 || units == 0; }
    bool rows_first() const noexcept { return region.order == Order::kRowsFirst; }
    std::uint64_t lines() const noexcept { return rows_first() ? rows : units; }
    std::uint64_t line_bytes() const noexcept;  // from the first to behind the last that is wanted
    std::uint64_t end_bytes() const noexcept;   // in the file
    bool has_parts_of_lines() const noexcept {
      return rows_first() ? units < all_units : rows < all_rows;
    }
    bool lies_as_wanted() const noexcept { return rows_first() && stored == wanted; }
    std::uint64_t wanted_bytes(std::uint64_t num_units) const noexcept;
    void narrow(Range of_rows, Range of_units) noexcept;
  };
  /// One member of targets::ExpertSource.
  struct Part {
    layout::MatrixRows targets::ExpertSource::*member = nullptr;
    std::uint32_t num_halves = 0;
    std::array<StoredRows, 2> halves;
    std::array<std::byte*, 2> stored{};  // the first byte of each half, in the slot
    std::array<std::byte*, 2> wanted{};  // where what must be turned goes
  };
  /// Some lines on their way; they go one by one where they lie far apart.
  struct Piece {
    std::byte* memory = nullptr;
    std::uint64_t first_line = 0;
    std::uint64_t num_lines = 0;
    std::size_t reads = 0;
  };
  /// Parts of lines that come into a slot through two pieces.
  struct Gather {
    static constexpr std::size_t kPieces = 2;

    StoredRows rows;
    std::byte* to = nullptr;
    std::array<Piece, kPieces> pieces{};
    std::uint64_t next_line = 0;

    bool goes_by_line() const noexcept;
    std::uint64_t lines_at_once() const noexcept;
    std::uint64_t piece_bytes() const noexcept;
    std::byte* line_in(const Piece& piece, std::uint64_t line) const noexcept;
  };
  /// An expert that is on its way.
  struct Begun {
    std::vector<Part> parts;
    std::vector<Gather> gathers;
    std::size_t reads = 0;
    Status status;
  };
  /// Deals out the bytes of a slot; without one it only counts.
  class Dealer;

  static std::vector<Part> parts_of(const ExpertSource& expert, const targets::Needs& needs,
                                    const targets::SourceWindow& window);
  static StoredRows codes_of(const MatrixSource& matrix, Range rows, Range k);
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
  /// What came in for which piece.
  struct Ticket {
    std::uint64_t expert = 0;
    std::size_t piece = 0;  // 0: not for a piece; else 1 + its number among all

    std::uint64_t number() const noexcept { return expert * kMostPieces + piece; }
    static Ticket of(std::uint64_t number) noexcept {
      return {number / kMostPieces, number % kMostPieces};
    }
    static constexpr std::uint64_t kMostPieces = 16;
  };
  void begin_piece(Begun& begun, const Ticket& ticket);
  void end_piece(Begun& begun, const Ticket& ticket);
  std::span<std::byte> slot(std::uint64_t ticket) const noexcept;
  void deal_out(const WantedExperts& wanted);
  Status read_in_turn(const WantedExperts& wanted, Take take);
  void begin(const WantedExperts& wanted, const WantedExpert& one);
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
