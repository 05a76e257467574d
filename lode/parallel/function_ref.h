#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace lode::parallel {

template <class Signature>
class FunctionRef;

/// Borrows something callable for the length of a call: two words, no allocation. The callable is
/// called as const and must outlive the reference; pass it on, do not keep it.
template <class R, class... Arguments>
class FunctionRef<R(Arguments...)> {
 public:
  template <class F>
  requires(!std::is_same_v<F, FunctionRef> && std::is_invocable_r_v<R, const F&, Arguments...>)
      FunctionRef(const F& function)
  noexcept : target_(std::addressof(function)), call_(call<F>) {}

  R operator()(Arguments... arguments) const {
    return call_(target_, std::forward<Arguments>(arguments)...);
  }

 private:
  template <class F>
  static R call(const void* target, Arguments... arguments) {
    return (*static_cast<const F*>(target))(std::forward<Arguments>(arguments)...);
  }
  const void* target_;
  R (*call_)(const void*, Arguments...);
};

}  // namespace lode::parallel
