#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "lode/base/result.h"
#include "lode/io/read_engine.h"

namespace lode::io {

/// An open file that leaves no pages behind. Move-only; closed when it ends.
class SourceHandle {
 public:
  SourceHandle(SourceHandle&& other) noexcept;
  SourceHandle& operator=(SourceHandle&&) = delete;
  ~SourceHandle();

  /// Errors: kSourceChanged where it is not the file that is meant; kIo.
  static Result<SourceHandle> open(const SourceFile& file);

  /// Fills `out` from `offset` on and drops the pages behind it.
  ///
  /// Shapes: out [bytes]
  /// Errors: kSourceChanged where the file ends before; kIo naming file and offset.
  Status read_into(std::uint64_t offset, std::span<std::byte> out) const;

  /// Drops every page of the file that the system still keeps.
  void drop_pages() const noexcept;

  /// Errors: kSourceChanged where the path no longer leads to the file that was opened, or it was
  /// changed; kIo.
  Status check_unchanged() const;

 private:
  SourceHandle(int descriptor, const SourceFile& file) : descriptor_(descriptor), file_(file) {}

  int descriptor_ = -1;
  SourceFile file_;
};

}  // namespace lode::io
