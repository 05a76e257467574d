#include "lode/comm/fate.h"

#include <utility>

namespace lode::comm {

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
