#include "lode/loader/expert_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/check.h"
#include "lode/base/fmt.h"
#include "lode/formats/dequantise.h"
#include "lode/loader/bind_matrix.h"

namespace lode::loader {
namespace {

using formats::Encoding;
using formats::Format;
using targets::Needs;

std::uint64_t bytes_of_units(Format format, std::uint64_t units) {
  return format == Format::kE2m1 ? units : units * number_bytes(format);
}

// Rows of blocks of a matrix; those of gate and of up must be their own.
std::uint64_t block_rows(const MatrixSource& matrix) {
  return formats::scale_rows(matrix.encoding, matrix.rows);
}
std::uint64_t first_block_row(const MatrixSource& matrix) {
  const std::uint32_t rows = matrix.encoding.block_rows;
  return rows == formats::kWhole ? 0 : matrix.row_origin / rows;
}
bool has_own_block_rows(const MatrixSource& matrix) {
  const std::uint32_t rows = matrix.encoding.block_rows;
  if (rows == formats::kWhole || rows == 1 || !matrix.encoding.has_scale) return true;
  return matrix.row_origin % rows == 0 && matrix.row_step == 1;
}

// Lode computes with FP8 scales in F32; MXFP8 keeps its own for whoever wants them as they are.
Encoding kept_encoding(const MatrixSource& matrix) {
  Encoding encoding = matrix.encoding;
  const bool mx = encoding.element == Format::kE4m3 && encoding.block_rows == 1 &&
                  encoding.block_k == formats::kMxfp8.block_k;
  if (mx && matrix.stored_scale_format == Format::kE8m0) encoding.scale = Format::kE8m0;
  if (encoding.tensor_scale == formats::TensorScale::kDivisor) {
    encoding.tensor_scale = formats::TensorScale::kMultiplier;  // as LayerScalars has it
  }
  return encoding;
}

bool in_turn(const ExpertSource& expert) {
  const Region& gate = expert.gate.codes;
  const Region& up = expert.up.codes;
  return expert.gate.row_step == 2 && gate.shard == up.shard && gate.order == up.order &&
         gate.offset_bytes < up.offset_bytes;
}

Error differs(std::size_t expert, std::string_view what) {
  return {.code = Code::kUnsupported,
          .thing = fmt::format("expert {}", expert),
          .wanted = fmt::format("{} as expert 0 of the layer has it", what),
          .found = "another"};
}

}  // namespace

bool have_input_scales(const std::vector<ExpertSource>& experts) noexcept {
  return std::ranges::any_of(experts, [](const ExpertSource& expert) {
    return expert.gate.has_input_scale || expert.up.has_input_scale || expert.down.has_input_scale;
  });
}

Result<targets::ExpertsShape> experts_shape(const std::vector<ExpertSource>& experts) {
  LODE_CHECK(!experts.empty(), "a layer with experts");
  const ExpertSource& first = experts.front();
  targets::ExpertsShape shape;
  shape.num_experts = experts.size();
  shape.hidden = first.gate.k;
  shape.intermediate = first.gate.rows;
  shape.rows_in_turn = in_turn(first);
  shape.bias = first.down_bias.present;
  shape.encoding = kept_encoding(first.gate);
  shape.scale_format = shape.encoding.scale;  // the reader turns them into it
  const Format stored = first.gate.stored_scale_format;
  shape.scales_are_exponents = stored == Format::kE8m0;
  if (shape.bias) shape.bias_format = first.down_bias.format;
  shape.input_scales = have_input_scales(experts);
  for (std::size_t i = 0; i < experts.size(); ++i) {
    const ExpertSource& expert = experts[i];
    for (const MatrixSource* matrix : {&expert.gate, &expert.up, &expert.down}) {
      if (kept_encoding(*matrix) != shape.encoding) return differs(i, "one encoding");
      if (matrix->stored_scale_format != stored) return differs(i, "scales");
      if (!has_own_block_rows(*matrix)) {
        return Error{.code = Code::kUnsupported,
                     .thing = fmt::format("block scales of expert {}", i),
                     .wanted = fmt::format("gate and up in whole blocks of {} rows",
                                           matrix->encoding.block_rows),
                     .found = fmt::format("{} rows each", expert.gate.rows)};
      }
    }
    if (in_turn(expert) != shape.rows_in_turn) return differs(i, "rows of gate and up");
  }
  return shape;
}

std::uint64_t ExpertReader::StoredRows::line_bytes() const noexcept {
  return rows_first() ? units * unit_bytes : (rows - 1) * region.inner_step_bytes + unit_bytes;
}

std::uint64_t ExpertReader::StoredRows::end_bytes() const noexcept {
  return region.offset_bytes + (lines() - 1) * region.outer_stride_bytes + line_bytes();
}

std::uint64_t ExpertReader::StoredRows::wanted_bytes(std::uint64_t num_units) const noexcept {
  return bytes_of_units(wanted, num_units);
}

void ExpertReader::StoredRows::narrow(Range of_rows, Range of_units) noexcept {
  first_row = of_rows.below(rows).begin;
  first_unit = of_units.below(units).begin;
  rows = of_rows.below(rows).size();
  units = of_units.below(units).size();
  const std::uint64_t unit_step = rows_first() ? unit_bytes : region.outer_stride_bytes;
  const std::uint64_t row_step = rows_first() ? region.outer_stride_bytes : region.inner_step_bytes;
  region.offset_bytes += first_row * row_step + first_unit * unit_step;
}

ExpertReader::StoredRows ExpertReader::codes_of(const MatrixSource& matrix, Range rows, Range k) {
  const Format element = matrix.encoding.element;
  const std::uint64_t per_unit = element == Format::kE2m1 ? 2 : 1;
  const std::uint64_t units = matrix.k / per_unit;
  StoredRows codes{matrix.codes, matrix.rows, units,       bytes_of_units(element, 1),
                   element,      element,     matrix.rows, units};
  const Range window = k.below(matrix.k);
  codes.narrow(rows, {window.begin / per_unit, window.end / per_unit});
  return codes;
}

ExpertReader::StoredRows ExpertReader::scales_of(const MatrixSource& matrix) {
  StoredRows rows{matrix.scales,
                  block_rows(matrix),
                  formats::scale_columns(matrix.encoding, matrix.k),
                  number_bytes(matrix.stored_scale_format),
                  matrix.stored_scale_format,
                  kept_encoding(matrix).scale};
  rows.all_rows = rows.rows;
  rows.all_units = rows.units;
  Region& region = rows.region;
  const std::uint64_t step = matrix.encoding.block_rows == 1 ? matrix.row_step : 1;
  std::uint64_t& row_stride =
      region.order == Order::kRowsFirst ? region.outer_stride_bytes : region.inner_step_bytes;
  region.offset_bytes += first_block_row(matrix) * row_stride;
  row_stride *= step;
  return rows;
}

ExpertReader::StoredRows ExpertReader::bias_of(const VectorSource& vector) {
  const Region region{.shard = vector.shard,
                      .order = Order::kRowsFirst,
                      .offset_bytes = vector.offset_bytes,
                      .outer_stride_bytes = vector.step_bytes,
                      .inner_step_bytes = 0};
  return {region,        vector.count, 1, number_bytes(vector.format), vector.format,
          vector.format, vector.count, 1};
}

std::vector<ExpertReader::Part> ExpertReader::parts_of(const ExpertSource& expert,
                                                       const Needs& needs,
                                                       const targets::SourceWindow& window) {
  using Source = targets::ExpertSource;
  std::vector<Part> parts;
  const auto pair = [&](auto member, const StoredRows& gate, const StoredRows& up) {
    parts.push_back({member, 2, {gate, up}});
  };
  const auto single = [&](auto member, const StoredRows& rows) {
    parts.push_back({member, 1, {rows}});
  };
  const bool scaled = expert.gate.encoding.has_scale;
  if (needs.gate_up) {
    pair(&Source::gate_up, codes_of(expert.gate, window.rows[0], window.k),
         codes_of(expert.up, window.rows[1], window.k));
  }
  if (needs.down) single(&Source::down, codes_of(expert.down, window.rows[0], window.k));
  if (needs.gate_up_scales && scaled) {
    pair(&Source::gate_up_scales, scales_of(expert.gate), scales_of(expert.up));
  }
  if (needs.down_scales && scaled) single(&Source::down_scales, scales_of(expert.down));
  if (needs.gate_up_bias && expert.gate_bias.present) {
    pair(&Source::gate_up_bias, bias_of(expert.gate_bias), bias_of(expert.up_bias));
  }
  if (needs.down_bias && expert.down_bias.present) {
    single(&Source::down_bias, bias_of(expert.down_bias));
  }
  return parts;
}

namespace {

/// One number in the format that is wanted.
void put_number(Format stored, std::span<const std::byte> from, Format wanted, std::byte* to) {
  if (stored == wanted) {
    std::memcpy(to, from.data(), from.size());
    return;
  }
  const float number = formats::number_at(stored, from, 0);
  std::memcpy(to, &number, sizeof number);
}

}  // namespace

// Lines that lie so far apart are read one by one, others with what is between them.
bool ExpertReader::Gather::goes_by_line() const noexcept {
  return rows.region.outer_stride_bytes >= 2 * (rows.line_bytes() + 2 * io::kBlockBytes);
}

namespace {
constexpr std::uint64_t kPieceBytes = 512 * kKiB;
// Of a line by itself: whole blocks wherever in one it begins.
std::uint64_t bytes_in_blocks(std::uint64_t bytes) {
  return align_up(bytes, io::kBlockBytes) + io::kBlockBytes;
}
}  // namespace

std::uint64_t ExpertReader::Gather::lines_at_once() const noexcept {
  const std::uint64_t line = rows.line_bytes();
  const std::uint64_t fitting = goes_by_line() ? kPieceBytes / bytes_in_blocks(line)
                                : line > kPieceBytes
                                    ? 1
                                    : 1 + (kPieceBytes - line) / rows.region.outer_stride_bytes;
  return std::clamp<std::uint64_t>(fitting, 1, rows.lines());
}

std::uint64_t ExpertReader::Gather::piece_bytes() const noexcept {
  const std::uint64_t lines = lines_at_once();
  if (goes_by_line()) return lines * bytes_in_blocks(rows.line_bytes());
  return bytes_in_blocks((lines - 1) * rows.region.outer_stride_bytes + rows.line_bytes());
}

std::byte* ExpertReader::Gather::line_in(const Piece& piece, std::uint64_t line) const noexcept {
  const Region& region = rows.region;
  const auto behind = [&](std::uint64_t of_line) {
    return (region.offset_bytes + of_line * region.outer_stride_bytes) % io::kBlockBytes;
  };
  const std::uint64_t within = line - piece.first_line;
  if (goes_by_line()) {
    return piece.memory + within * bytes_in_blocks(rows.line_bytes()) + behind(line);
  }
  return piece.memory + behind(piece.first_line) + within * region.outer_stride_bytes;
}

class ExpertReader::Dealer {
 public:
  explicit Dealer(std::span<std::byte> slot) : slot_(slot) {}

  /// What is read at once, and what is gathered. The places of a part's bytes go to it.
  struct Dealt {
    std::vector<io::ReadRequest> reads;
    std::vector<Gather> gathers;
  };
  void deal(Part& part, Dealt& dealt) {
    StoredRows& first = part.halves[0];
    StoredRows& second = part.halves[1];
    const auto begin_of = [](const StoredRows& rows) { return rows.region.offset_bytes; };
    // Rows, or units of k, that lie in turn are read once.
    const bool gathers = first.has_parts_of_lines() || second.has_parts_of_lines();
    const bool together = part.num_halves == 2 && !gathers && !first.empty() && !second.empty() &&
                          first.region.shard == second.region.shard &&
                          begin_of(first) < second.end_bytes() &&
                          begin_of(second) < first.end_bytes();
    if (together) {
      const std::uint64_t begin = std::min(begin_of(first), begin_of(second));
      const std::uint64_t end = std::max(first.end_bytes(), second.end_bytes());
      std::byte* const bytes = add(first.region.shard, begin, end, dealt.reads);
      for (std::size_t i = 0; bytes != nullptr && i < 2; ++i) {
        part.stored[i] = bytes + (begin_of(part.halves[i]) - begin);
      }
    } else {
      for (std::size_t i = 0; i < part.num_halves; ++i) {
        StoredRows& rows = part.halves[i];
        if (rows.empty()) continue;
        part.stored[i] = rows.has_parts_of_lines() ? gather(rows, dealt.gathers)
                                                   : add(rows.region.shard, begin_of(rows),
                                                         rows.end_bytes(), dealt.reads);
      }
    }
    for (std::size_t i = 0; i < part.num_halves; ++i) {
      const StoredRows& rows = part.halves[i];
      if (!rows.lies_as_wanted()) part.wanted[i] = take(rows.rows * rows.wanted_bytes(rows.units));
    }
  }
  std::uint64_t used_bytes() const noexcept { return used_; }

 private:
  // As far behind a block's beginning as in the file, and whole blocks of its own: one more than
  // its length asks for, so that every expert takes the same wherever in a block it begins.
  std::byte* add(std::uint32_t shard, std::uint64_t begin, std::uint64_t end,
                 std::vector<io::ReadRequest>& reads) {
    const std::uint64_t behind = begin % io::kBlockBytes;
    std::byte* const bytes = take(bytes_in_blocks(end - begin));
    if (bytes == nullptr) return nullptr;
    reads.push_back({.file_id = shard,
                     .offset_bytes = begin,
                     .out = {bytes + behind, end - begin},
                     .owns_blocks = true});
    return bytes + behind;
  }
  // Lines lie side by side afterwards.
  std::byte* gather(StoredRows& rows, std::vector<Gather>& gathers) {
    Gather gather{.rows = rows};
    gather.to = take(rows.lines() * rows.line_bytes());
    for (Piece& piece : gather.pieces) piece.memory = take(gather.piece_bytes());
    rows.region.outer_stride_bytes = rows.line_bytes();
    gathers.push_back(gather);
    return gather.to;
  }
  std::byte* take(std::uint64_t bytes) {
    std::byte* const place = slot_.empty() ? nullptr : slot_.subspan(used_).data();
    used_ += align_up(bytes, io::kBlockBytes);
    LODE_CHECK(slot_.empty() || used_ <= slot_.size(), "a slot is as large as was asked for");
    return place;
  }

  std::span<std::byte> slot_;
  std::uint64_t used_ = 0;
};

std::uint64_t ExpertReader::slot_bytes(const ExpertSource& expert, const targets::Needs& needs,
                                       const targets::SourceWindow& window) {
  Dealer counter({});
  Dealer::Dealt dealt;
  for (Part& part : parts_of(expert, needs, window)) counter.deal(part, dealt);
  return counter.used_bytes();
}

std::span<std::byte> ExpertReader::slot(std::uint64_t ticket) const noexcept {
  return memory_.subspan(ticket % num_slots_ * slot_bytes_, slot_bytes_);
}

// More than these are no faster.
void ExpertReader::deal_out(const WantedExperts& wanted) {
  constexpr std::uint64_t kMostSlots = 16;
  slot_bytes_ = io::kBlockBytes;
  for (const WantedExpert& one : wanted.which) {
    slot_bytes_ =
        std::max(slot_bytes_, slot_bytes(wanted.experts[one.expert], one.needs, one.window));
  }
  num_slots_ = std::min<std::uint64_t>(memory_.size() / slot_bytes_, kMostSlots);
  LODE_CHECK(num_slots_ > 0, "memory for one expert, or a window of it");
}

void ExpertReader::begin(const WantedExperts& wanted, const WantedExpert& one) {
  const std::uint64_t ticket = first_ticket_ + begun_.size();
  Begun& begun = begun_.emplace_back();
  begun.parts = parts_of(wanted.experts[one.expert], one.needs, one.window);
  Dealer dealer(slot(ticket));
  Dealer::Dealt dealt;
  for (Part& part : begun.parts) dealer.deal(part, dealt);
  for (io::ReadRequest& read : dealt.reads) {
    read.ticket = Ticket{ticket}.number();
    engine_.submit(read);
    ++begun.reads;
  }
  begun.gathers = std::move(dealt.gathers);
  const std::size_t num_pieces = begun.gathers.size() * Gather::kPieces;
  LODE_CHECK(num_pieces < Ticket::kMostPieces, "a ticket names every piece");
  for (std::size_t i = 0; i < num_pieces; ++i) begin_piece(begun, {ticket, 1 + i});
}

// The next lines, if there are any left and all went well until now.
void ExpertReader::begin_piece(Begun& begun, const Ticket& ticket) {
  Gather& gather = begun.gathers[(ticket.piece - 1) / Gather::kPieces];
  Piece& piece = gather.pieces[(ticket.piece - 1) % Gather::kPieces];
  const StoredRows& rows = gather.rows;
  if (gather.next_line == rows.lines() || !begun.status) return;
  piece.first_line = gather.next_line;
  piece.num_lines = std::min(gather.lines_at_once(), rows.lines() - piece.first_line);
  gather.next_line += piece.num_lines;
  const std::uint64_t stride = rows.region.outer_stride_bytes;
  const std::uint64_t at_once = gather.goes_by_line() ? 1 : piece.num_lines;
  for (std::uint64_t i = 0; i < piece.num_lines; i += at_once) {
    const std::uint64_t line = piece.first_line + i;
    const std::uint64_t bytes = (at_once - 1) * stride + rows.line_bytes();
    engine_.submit({.file_id = rows.region.shard,
                    .offset_bytes = rows.region.offset_bytes + line * stride,
                    .out = {gather.line_in(piece, line), bytes},
                    .ticket = ticket.number(),
                    .owns_blocks = true});
    ++piece.reads;
    ++begun.reads;
  }
}

void ExpertReader::end_piece(Begun& begun, const Ticket& ticket) {
  Gather& gather = begun.gathers[(ticket.piece - 1) / Gather::kPieces];
  Piece& piece = gather.pieces[(ticket.piece - 1) % Gather::kPieces];
  if (--piece.reads > 0 || !begun.status) return;
  const std::uint64_t bytes = gather.rows.line_bytes();
  for (std::uint64_t i = 0; i < piece.num_lines; ++i) {
    const std::uint64_t line = piece.first_line + i;
    std::memcpy(gather.to + line * bytes, gather.line_in(piece, line), bytes);
  }
  begin_piece(begun, ticket);
}

void ExpertReader::wait_for_a_read() {
  io::ReadCompletion done = engine_.wait();
  const Ticket ticket = Ticket::of(done.ticket);
  Begun& begun = begun_[ticket.expert - first_ticket_];
  --begun.reads;
  if (!done.status && begun.status) begun.status = std::move(done.status);
  if (ticket.piece != 0) end_piece(begun, ticket);
}

Result<targets::ExpertSource> ExpertReader::take_first() {
  while (begun_.front().reads > 0) wait_for_a_read();
  const Begun taken = std::move(begun_.front());
  begun_.pop_front();
  ++first_ticket_;
  LODE_TRY_STATUS(taken.status);
  return source_of(taken.parts);
}

// What was taken before has its slot free again.
Status ExpertReader::read_in_turn(const WantedExperts& wanted, Take take) {
  for (std::size_t at = 0; at < wanted.which.size(); ++at) {
    while (begun_.size() < std::min<std::size_t>(num_slots_, wanted.which.size() - at)) {
      begin(wanted, wanted.which[at + begun_.size()]);
    }
    LODE_TRY(const targets::ExpertSource source, take_first());
    LODE_TRY_STATUS(take(at, source));
  }
  return {};
}

Status ExpertReader::read_each(const WantedExperts& wanted, Take take) {
  deal_out(wanted);
  Status done = read_in_turn(wanted, take);
  for (Begun& begun : begun_) {
    for (Gather& gather : begun.gathers) gather.next_line = gather.rows.lines();  // no more of them
  }
  for (; !begun_.empty(); begun_.pop_front(), ++first_ticket_) {
    while (begun_.front().reads > 0) wait_for_a_read();
  }
  return done;
}

void ExpertReader::turn_units(const TurnedUnits& units, const std::byte* stored,
                              std::byte* wanted) {
  const StoredRows& rows = units.rows;
  const bool rows_first = rows.region.order == Order::kRowsFirst;
  const std::uint64_t row_step =
      rows_first ? rows.region.outer_stride_bytes : rows.region.inner_step_bytes;
  const std::uint64_t unit_step = rows_first ? rows.unit_bytes : rows.region.outer_stride_bytes;
  const std::uint64_t row_bytes = rows.wanted_bytes(rows.units);
  const std::uint64_t wanted_bytes = row_bytes / rows.units;
  for (std::uint64_t unit = units.first; unit < units.last; ++unit) {
    put_number(rows.stored, {stored + units.row * row_step + unit * unit_step, rows.unit_bytes},
               rows.wanted, wanted + units.row * row_bytes + unit * wanted_bytes);
  }
}

// Into rows, and into the format that is wanted; strip by strip of k, so that lines stay in the
// cache.
void ExpertReader::turn(const StoredRows& rows, const std::byte* stored, std::byte* wanted) {
  constexpr std::uint64_t kStripUnits = 64;
  for (std::uint64_t first = 0; first < rows.units; first += kStripUnits) {
    const std::uint64_t last = std::min(rows.units, first + kStripUnits);
    for (std::uint64_t row = 0; row < rows.rows; ++row) {
      turn_units({rows, row, first, last}, stored, wanted);
    }
  }
}

targets::ExpertSource ExpertReader::source_of(const std::vector<Part>& parts) {
  targets::ExpertSource source;
  for (const Part& part : parts) {
    layout::MatrixRows& rows = source.*part.member;
    rows.num_halves = part.num_halves;
    const StoredRows& first = part.halves[0];
    rows.half_rows = first.all_rows;
    rows.row_bytes = first.wanted_bytes(first.all_units);
    rows.bytes = {first.wanted_bytes(first.first_unit),
                  first.wanted_bytes(first.first_unit + first.units)};
    for (std::size_t i = 0; i < part.num_halves; ++i) {
      const StoredRows& stored = part.halves[i];
      const Range here{stored.first_row, stored.first_row + stored.rows};
      if (stored.lies_as_wanted() || stored.empty()) {
        rows.halves[i] = {part.stored[i], stored.region.outer_stride_bytes, here};
        continue;
      }
      turn(stored, part.stored[i], part.wanted[i]);
      rows.halves[i] = {part.wanted[i], stored.wanted_bytes(stored.units), here};
    }
  }
  return source;
}

}  // namespace lode::loader
