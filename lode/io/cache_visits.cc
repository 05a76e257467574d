#include "lode/io/cache_visits.h"

#include <algorithm>

#include "lode/base/bytes.h"
#include "lode/memory/buffer.h"

namespace lode::io {
namespace {

using memory::kPageBytes;

// Calls `body(page of a, page of b)` for each page that both have.
template <class Body>
void for_common_pages(CacheVisits::Visit& a, CacheVisits::Visit& b, const Body& body) {
  const std::uint64_t begin = std::max(a.first_page, b.first_page);
  const std::uint64_t end = std::min(a.last_page(), b.last_page());
  for (std::uint64_t page = begin; page < end; ++page) {
    body(a.ours[page - a.first_page], b.ours[page - b.first_page]);
  }
}

}  // namespace

CacheVisits::Ticket CacheVisits::enter(std::uint64_t begin_bytes, std::uint64_t end_bytes) {
  Visit visit;
  visit.first_page = begin_bytes / kPageBytes;
  visit.ours.resize(ceil_div(end_bytes, kPageBytes) - visit.first_page);
  const std::scoped_lock lock(mutex_);
  if (file_.look(visit.first_page, visit.ours)) {
    for (unsigned char& page : visit.ours) page ^= 1U;
  } else {
    std::fill(visit.ours.begin(), visit.ours.end(), static_cast<unsigned char>(1));
  }
  for (Visit& other : under_way_) {
    for_common_pages(visit, other, [](unsigned char& mine, unsigned char theirs) {
      mine = static_cast<unsigned char>(mine | theirs);
    });
  }
  under_way_.push_front(std::move(visit));
  return under_way_.begin();
}

void CacheVisits::leave(Ticket ticket) {
  const std::scoped_lock lock(mutex_);
  Visit visit = std::move(*ticket);
  under_way_.erase(ticket);
  for (Visit& other : under_way_) {
    for_common_pages(visit, other, [](unsigned char& mine, unsigned char theirs) {
      if (theirs != 0) mine = 0;
    });
  }
  // Under the lock: who enters now must find the pages gone, not take them for somebody else's.
  for (auto begin = visit.ours.begin(); begin != visit.ours.end();) {
    begin = std::find(begin, visit.ours.end(), 1);
    const auto end = std::find(begin, visit.ours.end(), 0);
    if (begin == end) break;
    const auto page = visit.first_page + static_cast<std::uint64_t>(begin - visit.ours.begin());
    file_.drop_cache(page * kPageBytes, static_cast<std::uint64_t>(end - begin) * kPageBytes);
    begin = end;
  }
}

}  // namespace lode::io
