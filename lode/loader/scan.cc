#include "lode/loader/scan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/loader/layer_scalars.h"
#include "lode/loader/number_scan.h"
#include "lode/loader/tensor_uses.h"
#include "lode/memory/buffer.h"

namespace lode::loader {
namespace {

using checkpoint::TensorRecord;

constexpr std::uint64_t kPieceBytes = 2 * kMiB;
constexpr std::size_t kNumPieces = 8;  // under way at once
// A piece lies in its slot as far behind a block's beginning as in its file.
constexpr std::uint64_t kSlotBytes = kPieceBytes + 2 * io::kBlockBytes;
constexpr std::uint64_t kMostMatrixScales = 64 * kMiB;  // of all tensors, kept to compare pairs
// A node of the map, and what the allocator rounds up of it and of the bytes.
constexpr std::uint64_t kKeptTensorBytes = 128;

// A part of one tensor in a piece.
struct Part {
  std::uint32_t position = 0;
  std::uint64_t tensor_offset = 0;
  std::uint64_t piece_offset = 0;
  std::uint64_t bytes = 0;
};

// Consecutive bytes of one shard.
struct Piece {
  std::uint32_t shard = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;
  std::vector<Part> parts;
};

// Cuts the files into pieces, tensor after tensor; numbers are never cut.
class PieceMaker {
 public:
  PieceMaker(const TensorUses& uses, const checkpoint::TensorIndex& index)
      : uses_(uses), index_(index) {}

  bool next(Piece& piece) {
    piece.parts.clear();
    piece.bytes = 0;
    while (at_ < uses_.in_file_order().size() && append(piece)) {
    }
    return !piece.parts.empty();
  }

 private:
  // Adds what fits of the next tensor; false where the piece ends.
  bool append(Piece& piece) {
    const std::uint32_t position = uses_.in_file_order()[at_];
    const TensorRecord& tensor = index_.tensors()[position];
    const std::uint64_t begin = tensor.file_offset + done_;
    if (piece.parts.empty()) {
      piece.shard = tensor.shard_id;
      piece.offset_bytes = begin;
    } else if (tensor.shard_id != piece.shard || begin != piece.offset_bytes + piece.bytes) {
      return false;
    }
    const std::uint64_t room = (kPieceBytes - piece.bytes) / 64 * 64;
    const std::uint64_t bytes = std::min(tensor.bytes - done_, room);
    if (bytes == 0 && tensor.bytes != 0) return false;
    piece.parts.push_back({position, done_, piece.bytes, bytes});
    piece.bytes += bytes;
    done_ += bytes;
    if (done_ < tensor.bytes) return false;
    done_ = 0;
    at_ += 1;
    return true;
  }

  const TensorUses& uses_;
  const checkpoint::TensorIndex& index_;
  std::size_t at_ = 0;      // in file order
  std::uint64_t done_ = 0;  // bytes of that tensor
};

std::string coordinate(const TensorRecord& tensor, std::uint64_t element) {
  std::vector<std::uint64_t> place(tensor.dims.size());
  for (std::size_t axis = place.size(); axis-- > 0;) {
    place[axis] = element % tensor.dims[axis];
    element /= tensor.dims[axis];
  }
  return checkpoint::dims_text(place);
}

// F32 scales of activations that engines divide by: a denormal's reciprocal may be infinite.
void count_without_reciprocal(std::span<const std::byte> bytes, std::uint64_t first_element,
                              NumberCounts& counts) {
  for (std::size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
    const float scale = formats::number_at(formats::Format::kF32, bytes, i);
    if (!(scale > 0.0F) || std::isfinite(1.0F / scale)) continue;
    counts.not_positive += 1;
    const std::uint64_t here = first_element + i;
    counts.first_not_positive = std::min(counts.first_not_positive.value_or(here), here);
  }
}

class Scanner {
 public:
  Scanner(const Binding& binding, const checkpoint::TensorIndex& index, Progress& progress)
      : binding_(binding), index_(index), progress_(progress), uses_(binding, index) {}

  /// At most what is kept of second-level scales.
  std::uint64_t kept_bound_bytes() const;
  Status read(io::ReadEngine& engine, std::span<std::byte> ring);
  ScanReport report();

 private:
  bool submit(io::ReadEngine& engine, std::size_t slot, std::span<std::byte> ring);
  std::span<std::byte> place_of(std::size_t slot, std::span<std::byte> ring) const;
  void look_at(const Piece& piece, std::span<const std::byte> bytes);
  void look_at(const Part& part, std::span<const std::byte> bytes);
  void keep(const Part& part, std::span<const std::byte> bytes);
  void describe(std::uint32_t position, const NumberCounts& counts);
  void compare_scales();
  void compare_pair(const MatrixSource& gate, const MatrixSource& up, const std::string& place);
  void weigh_scale(const MatrixSource& matrix, const std::string& place, std::string_view name);
  std::optional<float> matrix_scale(const MatrixSource& matrix) const;

  const Binding& binding_;
  const checkpoint::TensorIndex& index_;
  Progress& progress_;
  TensorUses uses_;
  PieceMaker maker_{uses_, index_};
  std::array<Piece, kNumPieces> pieces_;
  std::map<std::uint32_t, NumberCounts> bad_;                    // tensors that have something
  std::map<std::uint32_t, std::vector<std::byte>> scale_bytes_;  // of tensors of matrix scales
  std::uint64_t kept_bytes_ = 0;
  ScanReport report_;
};

std::span<std::byte> Scanner::place_of(std::size_t slot, std::span<std::byte> ring) const {
  const Piece& piece = pieces_[slot];
  return ring.subspan(slot * kSlotBytes + piece.offset_bytes % io::kBlockBytes, piece.bytes);
}

bool Scanner::submit(io::ReadEngine& engine, std::size_t slot, std::span<std::byte> ring) {
  Piece& piece = pieces_[slot];
  if (progress_.cancel.load(std::memory_order_relaxed) || !maker_.next(piece)) return false;
  engine.submit({.file_id = piece.shard,
                 .offset_bytes = piece.offset_bytes,
                 .out = place_of(slot, ring),
                 .ticket = slot,
                 .owns_blocks = true});
  return true;
}

Status Scanner::read(io::ReadEngine& engine, std::span<std::byte> ring) {
  std::size_t under_way = 0;
  for (std::size_t slot = 0; slot < kNumPieces; ++slot) {
    under_way += submit(engine, slot, ring) ? 1U : 0U;
  }
  Status first;
  while (under_way > 0) {
    io::ReadCompletion done = engine.wait();
    under_way -= 1;
    if (!done.status && first) first = std::move(done.status);
    if (!first) continue;  // no more is begun; what is under way must come in
    const std::size_t slot = done.ticket;
    look_at(pieces_[slot], place_of(slot, ring));
    under_way += submit(engine, slot, ring) ? 1U : 0U;
  }
  LODE_TRY_STATUS(std::move(first));
  if (progress_.cancel.load()) {
    return Error{.code = Code::kInterrupted, .thing = "looking at the numbers"};
  }
  return engine.finish();
}

void Scanner::look_at(const Piece& piece, std::span<const std::byte> bytes) {
  for (const Part& part : piece.parts) look_at(part, bytes.subspan(part.piece_offset, part.bytes));
  report_.num_bytes += piece.bytes;
  progress_.finished_bytes.fetch_add(piece.bytes, std::memory_order_relaxed);
}

void Scanner::look_at(const Part& part, std::span<const std::byte> bytes) {
  report_.num_tensors += part.tensor_offset == 0 ? 1U : 0U;
  const TensorUseKind& kind = uses_.of(part.position);
  const std::uint64_t bits = formats::info(kind.format).bits;
  const std::uint64_t first = part.tensor_offset * 8 / bits;
  NumberCounts counts;
  switch (kind.use) {
    case NumberUse::kUnknown:
      return;
    case NumberUse::kNumbers:
      count_non_finite(kind.format, bytes, first, counts);
      break;
    case NumberUse::kBlockScales:
      count_numbers(kind.format, bytes, first, counts);
      report_.num_scales += bytes.size() * 8 / bits;
      report_.zero_scales += counts.zero;
      report_.denormal_scales += counts.denormal;
      report_.negative_scales += counts.negative;
      break;
    case NumberUse::kMatrixScales:
      count_numbers(kind.format, bytes, first, counts);
      keep(part, bytes);
      break;
    case NumberUse::kInputScales:
      count_numbers(kind.format, bytes, first, counts);
      count_without_reciprocal(bytes, first, counts);
      break;
  }
  const bool positive = kind.use == NumberUse::kMatrixScales || kind.use == NumberUse::kInputScales;
  if (counts.non_finite > 0 || (positive && counts.not_positive > 0)) {
    bad_[part.position].add(counts);
  }
}

// The whole of a tensor or nothing.
void Scanner::keep(const Part& part, std::span<const std::byte> bytes) {
  if (part.tensor_offset == 0) {
    const std::uint64_t whole = index_.tensors()[part.position].bytes;
    if (kept_bytes_ + whole > kMostMatrixScales) return;
    scale_bytes_[part.position].resize(whole);
    kept_bytes_ += whole;
  }
  const auto kept = scale_bytes_.find(part.position);
  if (kept == scale_bytes_.end()) return;
  std::copy(bytes.begin(), bytes.end(),
            kept->second.begin() + static_cast<std::ptrdiff_t>(part.tensor_offset));
}

std::uint64_t Scanner::kept_bound_bytes() const {
  std::uint64_t bytes = 0;
  std::uint64_t num_tensors = 0;
  for (const std::uint32_t position : uses_.in_file_order()) {
    if (uses_.of(position).use != NumberUse::kMatrixScales) continue;
    bytes += index_.tensors()[position].bytes;
    num_tensors += 1;
  }
  return std::min(bytes, kMostMatrixScales) + num_tensors * kKeptTensorBytes;
}

void Scanner::describe(std::uint32_t position, const NumberCounts& counts) {
  const TensorRecord& tensor = index_.tensors()[position];
  const auto add = [&](std::uint64_t count, std::uint64_t first, std::string_view thing,
                       std::string_view is_not) {
    const bool one = count == 1;
    report_.faults.push_back(
        {checkpoint::printable(tensor.name),
         fmt::format("{} that {} not {}, {} {}", count_of(count, thing), one ? "is" : "are", is_not,
                     one ? "at" : "the first at", coordinate(tensor, first)),
         index_.shard_of(tensor).path});
  };
  const NumberUse use = uses_.of(position).use;
  if (counts.first_non_finite) {
    add(counts.non_finite, *counts.first_non_finite,
        use == NumberUse::kNumbers ? "number" : "scale", "finite");
  }
  if (use == NumberUse::kMatrixScales && counts.first_not_positive) {
    add(counts.not_positive, *counts.first_not_positive, "matrix scale", "above zero");
  }
  if (use == NumberUse::kInputScales && counts.first_not_positive) {
    add(counts.not_positive, *counts.first_not_positive, "input scale",
        "above zero with a finite reciprocal");
  }
}

// The scale of a matrix as it is written, where there is one and it was kept.
std::optional<float> Scanner::matrix_scale(const MatrixSource& matrix) const {
  if (!matrix.present) return std::nullopt;
  const bool second = matrix.encoding.tensor_scale != formats::TensorScale::kNone;
  const std::uint64_t offset_bytes =
      second ? matrix.matrix_scale_offset_bytes : matrix.scales.offset_bytes;
  const auto position =
      uses_.at(second ? matrix.matrix_scale_shard : matrix.scales.shard, offset_bytes);
  const auto kept = position ? scale_bytes_.find(*position) : scale_bytes_.end();
  if (kept == scale_bytes_.end()) return std::nullopt;
  const formats::Format format = uses_.of(*position).format;
  const std::uint64_t within = offset_bytes - index_.tensors()[*position].file_offset;
  const std::uint64_t bytes = formats::info(format).bits / 8;
  if (within + bytes > kept->second.size()) return std::nullopt;
  return formats::number_at(format, std::span(kept->second).subspan(within, bytes), 0);
}

void Scanner::compare_pair(const MatrixSource& gate, const MatrixSource& up,
                           const std::string& place) {
  const auto a = matrix_scale(gate);
  const auto b = matrix_scale(up);
  if (!a || !b || *a == *b) return;
  report_.unequal_pairs += 1;
  if (report_.unequal_pairs == 1) report_.first_unequal_pair = place;
}

void Scanner::weigh_scale(const MatrixSource& matrix, const std::string& place,
                          std::string_view name) {
  const formats::TensorScale kind = matrix.encoding.tensor_scale;
  const auto stored = matrix_scale(matrix);
  if (!stored) return;
  const float scale = kind == formats::TensorScale::kDivisor ? 1.0F / *stored : *stored;
  const auto count = [&](std::uint64_t& scales, std::string& first) {
    scales += 1;
    if (scales == 1) first = fmt::format("{}, {}", place, name);
  };
  if (std::fpclassify(scale) == FP_SUBNORMAL) {
    count(report_.denormal_matrix_scales, report_.first_denormal_matrix_scale);
  }
  if (kind != formats::TensorScale::kNone && !is_plausible(scale)) {
    count(report_.implausible_scales, report_.first_implausible_scale);
  }
}

void Scanner::compare_scales() {
  using families::Role;
  for (std::size_t layer = 0; layer < binding_.layers.size(); ++layer) {
    const auto& matrices = binding_.layers[layer].matrices;
    compare_pair(matrices[static_cast<std::size_t>(Role::kMlpGate)],
                 matrices[static_cast<std::size_t>(Role::kMlpUp)], fmt::format("layer {}", layer));
    const auto& experts = binding_.experts[layer];
    for (std::size_t idx = 0; idx < experts.size(); ++idx) {
      const std::string place = fmt::format("layer {}, expert {}", layer, idx);
      compare_pair(experts[idx].gate, experts[idx].up, place);
      weigh_scale(experts[idx].gate, place, "gate");
      weigh_scale(experts[idx].up, place, "up");
      weigh_scale(experts[idx].down, place, "down");
    }
  }
}

ScanReport Scanner::report() {
  for (const std::uint32_t position : uses_.in_file_order()) {
    if (const auto found = bad_.find(position); found != bad_.end()) {
      describe(position, found->second);
    }
  }
  compare_scales();
  return std::move(report_);
}

}  // namespace

Result<ScanReport> scan(const Binding& binding, const checkpoint::TensorIndex& index,
                        io::ReadEngine& engine, memory::Ledger& ledger, Progress* progress) {
  Progress unread;
  Progress& told = progress != nullptr ? *progress : unread;
  told.total_bytes.store(index.tensor_bytes());
  told.finished_bytes.store(0);
  LODE_TRY(const memory::Reservation tables,
           ledger.reserve(memory::Tag::kMetadata, index.tensors().size() * 16, "uses of tensors"));
  LODE_TRY(memory::Buffer ring,
           memory::make_buffer(ledger, memory::Tag::kStaging, kNumPieces * kSlotBytes,
                               "ring of pieces that are looked at"));
  Scanner scanner(binding, index, told);
  LODE_TRY(const memory::Reservation kept,
           ledger.reserve(memory::Tag::kMetadata, scanner.kept_bound_bytes(),
                          "second-level scales that are compared"));
  LODE_TRY_STATUS(scanner.read(engine, ring.mutate()));
  return scanner.report();
}

}  // namespace lode::loader
