#include "lode/io/source_reader.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

#include "lode/base/bytes.h"
#include "lode/base/check.h"
#include "lode/base/fmt.h"

namespace lode::io {
namespace {

std::uint64_t block_begin(std::uint64_t bytes) { return bytes / kBlockBytes * kBlockBytes; }

// Whether whole blocks of the file can be read to whole blocks of memory that are the piece's.
bool fits_blocks(const Piece& piece) {
  const auto address = std::bit_cast<std::uintptr_t>(piece.out.data());
  if (address % kBlockBytes != piece.begin_bytes % kBlockBytes) return false;
  if (piece.owns_blocks) return true;
  return piece.begin_bytes % kBlockBytes == 0 && piece.end_bytes() % kBlockBytes == 0;
}

bool refuses_direct(std::int64_t answer) {
  return answer == -EINVAL || answer == -EOPNOTSUPP || answer == -ENOSYS;
}

}  // namespace

SourceReader::SourceReader(std::span<const SourceFile> files, SystemCalls& calls) : calls_(calls) {
  files_.reserve(files.size());
  for (const SourceFile& file : files) files_.push_back(std::make_unique<File>(file, calls));
}

Status SourceReader::open(Way way) {
  for (const auto& file : files_) LODE_TRY_STATUS(file->handle.open(way));
  return {};
}

bool SourceReader::is_resident(const Piece& piece) {
  const std::uint64_t first = piece.begin_bytes / kBlockBytes;
  std::vector<unsigned char> pages(ceil_div(piece.end_bytes(), kBlockBytes) - first);
  return file(piece.file_id).look(first, pages) &&
         std::find(pages.begin(), pages.end(), 0) == pages.end();
}

void SourceReader::begin(Piece& piece, bool look_first) {
  LODE_CHECK(piece.file_id < files_.size(), "a read names one of the engine's files");
  piece.direct = !piece.out.empty() && file(piece.file_id).is_direct() && fits_blocks(piece) &&
                 !(look_first && is_resident(piece));
  piece.next_bytes = piece.direct ? block_begin(piece.begin_bytes) : piece.begin_bytes;
  if (!piece.direct) go_through_cache(piece);
}

// From where it has come to.
void SourceReader::go_through_cache(Piece& piece) {
  piece.direct = false;
  piece.next_bytes = std::max(piece.next_bytes, piece.begin_bytes);
  piece.visit = files_[piece.file_id]->visits.enter(piece.next_bytes, piece.end_bytes());
  cached_bytes_.fetch_add(piece.end_bytes() - piece.next_bytes, std::memory_order_relaxed);
}

Result<ReadCall> SourceReader::call(Piece& piece) {
  SourceHandle& source = file(piece.file_id);
  auto descriptor = source.descriptor(piece.direct);
  if (!descriptor && piece.direct && descriptor.error().code != Code::kSourceChanged) {
    source.refuse_direct();
    go_through_cache(piece);
    descriptor = source.descriptor(false);
  }
  ReadCall call;
  LODE_TRY(call.descriptor, std::move(descriptor));
  call.offset_bytes = piece.next_bytes;
  const std::uint64_t end =
      piece.direct ? align_up(piece.end_bytes(), kBlockBytes) : piece.end_bytes();
  // A direct call begins before what is wanted, in the rest of the first block.
  std::byte* const begin = piece.next_bytes >= piece.begin_bytes
                               ? piece.out.data() + (piece.next_bytes - piece.begin_bytes)
                               : piece.out.data() - (piece.begin_bytes - piece.next_bytes);
  call.out = {begin, static_cast<std::size_t>(end - piece.next_bytes)};
  return call;
}

Result<bool> SourceReader::advance(Piece& piece, std::int64_t answer) {
  if (piece.out.empty()) return true;
  if (answer == -EINTR || answer == -EAGAIN) return false;
  SourceHandle& source = file(piece.file_id);
  if (piece.direct && refuses_direct(answer)) {
    source.refuse_direct();
    go_through_cache(piece);
    return false;
  }
  if (answer < 0) {
    return at(fmt::format("offset {}", std::max(piece.next_bytes, piece.begin_bytes)),
              system_error(source.file().path, "read", answer));
  }
  const std::uint64_t come_to = piece.next_bytes + static_cast<std::uint64_t>(answer);
  if (come_to >= piece.end_bytes()) return true;
  if (!piece.direct && answer == 0) {
    return source_changed(source.file().path, fmt::format("its end at byte {}", come_to));
  }
  if (!piece.direct || block_begin(come_to) > piece.next_bytes) {
    piece.next_bytes = piece.direct ? block_begin(come_to) : come_to;
    return false;
  }
  // Less than a block: only reads through the cache can tell what is there.
  piece.next_bytes = come_to;
  go_through_cache(piece);
  return false;
}

void SourceReader::end(Piece& piece) {
  File& file = *files_[piece.file_id];
  if (piece.visit) file.visits.leave(*piece.visit);
  piece.visit.reset();
  file.bytes_read.fetch_add(piece.out.size(), std::memory_order_relaxed);
}

std::size_t SourceReader::num_direct_files() const noexcept {
  return static_cast<std::size_t>(std::count_if(
      files_.begin(), files_.end(), [](const auto& file) { return file->handle.is_direct(); }));
}

std::vector<std::uint64_t> SourceReader::bytes_read() const {
  std::vector<std::uint64_t> bytes;
  bytes.reserve(files_.size());
  for (const auto& file : files_) {
    bytes.push_back(file->bytes_read.load(std::memory_order_relaxed));
  }
  return bytes;
}

Status SourceReader::check_unchanged() {
  for (const auto& file : files_) LODE_TRY_STATUS(file->handle.check_unchanged());
  return {};
}

std::size_t Requests::take_slot(const ReadRequest& request) {
  if (free_.empty()) {
    free_.push_back(under_way_.size());
    under_way_.emplace_back();
  }
  const std::size_t idx = free_.back();
  free_.pop_back();
  under_way_[idx] = {request.ticket, 0, {}};
  return idx;
}

std::optional<ReadCompletion> Requests::finish_piece(std::size_t request_idx, Status status) {
  UnderWay& request = under_way_[request_idx];
  if (!status && request.status) request.status = std::move(status);
  if (--request.pieces_to_come > 0) return std::nullopt;
  free_.push_back(request_idx);
  return ReadCompletion{request.ticket, std::move(request.status)};
}

}  // namespace lode::io
