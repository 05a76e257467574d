#include "lode/prepared/journal.h"

#include <utility>

#include "lode/base/bytes.h"
#include "lode/prepared/format.h"
#include "lode/prepared/wire.h"

namespace lode::prepared {
namespace {

constexpr std::size_t kHeaderBytes = 256;
constexpr std::size_t kSumBytes = sizeof(std::uint32_t);
constexpr std::size_t kRecordHeadBytes = 16;
constexpr std::string_view kMagic = "LODEJNL";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kChunksRecord = 0x4B4E4843;  // "CHNK"
constexpr std::uint32_t kHolesRecord = 0x454C4F48;   // "HOLE"

std::vector<std::byte> header_of(const Fingerprint& fingerprint) {
  RecordWriter out;
  out.text(kMagic, 8);
  out.number(kVersion);
  out.number(std::uint32_t{0});
  out.raw(fingerprint.settings);
  out.raw(fingerprint.sources);
  out.raw(fingerprint.source_times);
  out.fill_to(kHeaderBytes - kSumBytes);
  out.number(io::crc32c(out.bytes()));
  return std::move(out).take();
}

io::Sha256::Digest read_digest(RecordReader& in) {
  io::Sha256::Digest digest{};
  for (std::byte& byte : digest) byte = in.number<std::byte>();
  return digest;
}

std::uint32_t sum_at(std::span<const std::byte> bytes, std::size_t offset) {
  return RecordReader(bytes.subspan(offset)).number<std::uint32_t>();
}

struct Record {
  std::uint32_t kind = 0;
  std::uint64_t first = 0;
  std::vector<std::uint32_t> crcs;
  std::size_t bytes = 0;
};

std::optional<Record> read_record(std::span<const std::byte> bytes, std::uint32_t header_sum) {
  RecordReader in(bytes);
  Record record;
  record.kind = in.number<std::uint32_t>();
  const auto count = in.number<std::uint32_t>();
  record.first = in.number<std::uint64_t>();
  record.bytes = kRecordHeadBytes + std::size_t{count} * kSumBytes + kSumBytes;
  if (in.overran() || record.bytes > bytes.size()) return std::nullopt;
  if (record.kind != kChunksRecord && record.kind != kHolesRecord) return std::nullopt;
  const std::size_t end = record.bytes - kSumBytes;
  if (io::crc32c(bytes.first(end), header_sum) != sum_at(bytes, end)) return std::nullopt;
  for (std::uint32_t i = 0; i < count; ++i) record.crcs.push_back(in.number<std::uint32_t>());
  return record;
}

std::vector<std::byte> record_of(std::uint32_t kind, std::uint64_t first,
                                 std::span<const std::uint32_t> crcs) {
  RecordWriter out;
  out.number(kind);
  out.number(static_cast<std::uint32_t>(crcs.size()));
  out.number(first);
  out.raw(std::as_bytes(crcs));
  return std::move(out).take();
}

}  // namespace

std::optional<JournalState> read_journal(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeaderBytes) return std::nullopt;
  const auto header = bytes.first(kHeaderBytes);
  RecordReader in(header);
  if (in.text(8) != kMagic || in.number<std::uint32_t>() != kVersion) return std::nullopt;
  const std::uint32_t header_sum = sum_at(header, kHeaderBytes - kSumBytes);
  if (io::crc32c(header.first(kHeaderBytes - kSumBytes)) != header_sum) return std::nullopt;
  in.skip(sizeof(std::uint32_t));
  JournalState state;
  state.fingerprint.settings = read_digest(in);
  state.fingerprint.sources = read_digest(in);
  state.fingerprint.source_times = read_digest(in);
  state.end_bytes = kHeaderBytes;
  while (const auto record = read_record(bytes.subspan(state.end_bytes), header_sum)) {
    if (record->kind == kChunksRecord) {
      if (record->first != state.chunk_crcs.size()) break;
      state.chunk_crcs.insert(state.chunk_crcs.end(), record->crcs.begin(), record->crcs.end());
    } else {
      state.holes_up_to_stage = record->first;
    }
    state.end_bytes += record->bytes;
  }
  return state;
}

Result<Journal> Journal::create(OutputFile file, const Fingerprint& fingerprint,
                                std::uint64_t num_chunks) {
  const std::vector<std::byte> header = header_of(fingerprint);
  LODE_TRY_STATUS(file.truncate(0));
  // At worst every chunk has a record of its own.
  LODE_TRY_STATUS(
      file.allocate(0, kHeaderBytes + num_chunks * 2 * (kRecordHeadBytes + 2 * kSumBytes)));
  LODE_TRY_STATUS(file.write(header, 0));
  LODE_TRY_STATUS(file.sync_data());
  return Journal(std::move(file), sum_at(header, kHeaderBytes - kSumBytes), kHeaderBytes);
}

Journal Journal::resume(OutputFile file, const JournalState& state) {
  const std::vector<std::byte> header = header_of(state.fingerprint);
  return Journal(std::move(file), sum_at(header, kHeaderBytes - kSumBytes), state.end_bytes);
}

Status Journal::append(std::vector<std::byte> record) {
  const std::uint32_t sum = io::crc32c(record, header_sum_);
  const auto bytes = std::as_bytes(std::span(&sum, 1));
  record.insert(record.end(), bytes.begin(), bytes.end());
  LODE_TRY_STATUS(file_.write(record, end_bytes_));
  LODE_TRY_STATUS(file_.sync_data());
  end_bytes_ += record.size();
  return {};
}

Status Journal::add_chunks(std::uint64_t first_chunk, std::span<const std::uint32_t> crcs) {
  return append(record_of(kChunksRecord, first_chunk, crcs));
}

Status Journal::add_holes(std::uint64_t stage_idx) {
  return append(record_of(kHolesRecord, stage_idx, {}));
}

}  // namespace lode::prepared
