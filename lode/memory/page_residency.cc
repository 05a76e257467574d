#include "lode/memory/page_residency.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "lode/memory/buffer.h"

namespace lode::memory {
// The kernel's own question (can_do_mincore), asked from outside.
bool may_see_residency(int descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return false;
  const uid_t user = ::geteuid();
  if (user == 0 || user == status.st_uid) return true;
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  return ::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0;
}

PageResidency::PageResidency(PageResidency&& other) noexcept
    : begin_(std::exchange(other.begin_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PageResidency& PageResidency::operator=(PageResidency&& other) noexcept {
  std::swap(begin_, other.begin_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PageResidency::~PageResidency() {
  if (begin_ != nullptr) ::munmap(begin_, bytes_);
}

std::optional<PageResidency> PageResidency::of(int descriptor, std::uint64_t bytes) {
  if (bytes == 0 || !may_see_residency(descriptor)) return std::nullopt;
  void* const begin = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (begin == MAP_FAILED) return std::nullopt;
  return PageResidency(static_cast<std::byte*>(begin), bytes);
}

bool PageResidency::look(std::uint64_t first_page, std::span<unsigned char> resident) const {
  const std::uint64_t num_pages = (bytes_ + kPageBytes - 1) / kPageBytes;
  const std::uint64_t first = std::min(first_page, num_pages);
  const std::uint64_t count = std::min<std::uint64_t>(resident.size(), num_pages - first);
  std::fill(resident.begin(), resident.end(), static_cast<unsigned char>(0));
  if (count == 0) return true;
  if (::mincore(begin_ + first * kPageBytes, count * kPageBytes, resident.data()) != 0) {
    return false;
  }
  for (unsigned char& page : resident) page &= 1U;
  return true;
}

}  // namespace lode::memory
