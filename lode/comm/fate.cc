#include "lode/comm/fate.h"

#include <utility>

#include "lode/base/fmt.h"

namespace lode::comm {

Error at_rank(std::size_t rank, Error error) {
  if (error.where.starts_with("rank ")) return error;
  return at(fmt::format("rank {}", rank), std::move(error));
}

Status Fate::status() const {
  if (!failed()) return {};
  const std::lock_guard lock(mutex_);
  return error_;
}

Error Fate::raise(Error error) {
  const std::lock_guard lock(mutex_);
  if (!failed_.load()) {
    error_ = std::move(error);
    failed_.store(true);
  }
  return error_;
}

}  // namespace lode::comm
