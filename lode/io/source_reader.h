#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lode/base/result.h"
#include "lode/io/cache_visits.h"
#include "lode/io/source_handle.h"

namespace lode::io {

/// A part of a request, on its way.
struct Piece {
  std::uint32_t file_id = 0;
  std::uint64_t begin_bytes = 0;  // in the file
  std::span<std::byte> out;       // what is wanted from there on
  std::size_t request_idx = 0;    // whose part it is
  bool owns_blocks = false;
  bool direct = false;
  std::uint64_t next_bytes = 0;  // where in the file the next call begins
  std::optional<CacheVisits::Ticket> visit;

  std::uint64_t end_bytes() const noexcept { return begin_bytes + out.size(); }
};

/// One call that brings bytes of a piece.
struct ReadCall {
  int descriptor = -1;
  std::span<std::byte> out;
  std::uint64_t offset_bytes = 0;
};

/// What all engines share: which way a piece goes, what to make of a call's answer, and that the
/// page cache is left as it was. An engine makes the calls.
class SourceReader {
 public:
  SourceReader(std::span<const SourceFile> files, SystemCalls& calls);

  /// Errors: kSourceChanged, kIo naming the file.
  Status open(Way way);

  /// `look_first`: what is wholly in the page cache is copied from there.
  void begin(Piece& piece, bool look_first);
  /// The next call to be made for it.
  /// Errors: kSourceChanged, kIo where its file cannot be opened a second time.
  Result<ReadCall> call(Piece& piece);
  /// Takes a call's answer (a count or -errno): whether the piece is complete. If not, it wants
  /// another call.
  /// Errors: kSourceChanged where the file ends before; kIo naming file and offset.
  Result<bool> advance(Piece& piece, std::int64_t answer);
  /// Whether complete or given up.
  void end(Piece& piece);

  SystemCalls& calls() noexcept { return calls_; }
  std::size_t num_files() const noexcept { return files_.size(); }
  SourceHandle& file(std::size_t idx) noexcept { return files_[idx]->handle; }
  /// Files that direct reads are made of, now.
  std::size_t num_direct_files() const noexcept;
  /// Bytes that went through the page cache.
  std::uint64_t cached_bytes() const noexcept { return cached_bytes_.load(); }
  std::vector<std::uint64_t> bytes_read() const;
  /// Errors: kSourceChanged naming the first file that is not what it was; kIo.
  Status check_unchanged();

 private:
  struct File {
    File(const SourceFile& file, SystemCalls& calls) : handle(file, calls), visits(handle) {}
    SourceHandle handle;
    CacheVisits visits;
    std::atomic<std::uint64_t> bytes_read = 0;
  };
  void go_through_cache(Piece& piece);
  bool is_resident(const Piece& piece);

  SystemCalls& calls_;
  std::vector<std::unique_ptr<File>> files_;
  std::atomic<std::uint64_t> cached_bytes_ = 0;
};

/// Requests under way and how many of their pieces are still to come. Not thread-safe.
class Requests {
 public:
  /// Cuts a request into pieces of at most `piece_bytes`, at ends of blocks, and gives each to
  /// `take`; a request of no bytes has one piece.
  template <class Take>
  void add(const ReadRequest& request, std::uint64_t piece_bytes, const Take& take) {
    const std::size_t idx = take_slot(request);
    std::uint64_t begin = request.offset_bytes;
    const std::uint64_t end = begin + request.out.size();
    do {
      const std::uint64_t stop = std::min(end, (begin + piece_bytes) / kBlockBytes * kBlockBytes);
      Piece piece;
      piece.file_id = request.file_id;
      piece.begin_bytes = begin;
      piece.out = request.out.subspan(begin - request.offset_bytes, stop - begin);
      piece.request_idx = idx;
      piece.owns_blocks = request.owns_blocks;
      ++under_way_[idx].pieces_to_come;
      take(piece);
      begin = stop;
    } while (begin < end);
  }

  /// The request's completion, once its last piece has come; the first error counts.
  std::optional<ReadCompletion> finish_piece(std::size_t request_idx, Status status);

 private:
  struct UnderWay {
    std::uint64_t ticket = 0;
    std::uint64_t pieces_to_come = 0;
    Status status;
  };
  std::size_t take_slot(const ReadRequest& request);

  std::vector<UnderWay> under_way_;
  std::vector<std::size_t> free_;
};

}  // namespace lode::io
