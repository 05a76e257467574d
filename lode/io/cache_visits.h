#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <vector>

#include "lode/io/source_handle.h"

namespace lode::io {

/// Reads of one file through the page cache that leave it as they found it: pages that were there
/// stay, those that a read brought are dropped behind it. Where several reads share a page, the
/// last of them drops it. Thread-safe. Memory: a byte a page of each read under way.
class CacheVisits {
 public:
  explicit CacheVisits(SourceHandle& file) : file_(file) {}
  CacheVisits(const CacheVisits&) = delete;
  CacheVisits& operator=(const CacheVisits&) = delete;

  struct Visit {
    std::uint64_t first_page = 0;
    std::vector<unsigned char> ours;  // an element a page: whether reads of ours brought it
    std::uint64_t last_page() const noexcept { return first_page + ours.size(); }
  };
  using Ticket = std::list<Visit>::iterator;

  /// Before bytes [begin, end) are read; where the system does not tell what is there already, all
  /// of it counts as brought.
  Ticket enter(std::uint64_t begin_bytes, std::uint64_t end_bytes);
  /// When they have been.
  void leave(Ticket ticket);

 private:
  SourceHandle& file_;
  std::mutex mutex_;
  std::list<Visit> under_way_;
};

}  // namespace lode::io
