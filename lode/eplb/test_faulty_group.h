#pragma once

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include "lode/comm/group.h"

// For tests only: a rank that dies in a certain call, or sends something else than it was given.

namespace lode::eplb::test {

inline constexpr std::size_t kNever = ~std::size_t{0};

/// A message that notes its number when it is given up.
class Noted final : public comm::PendingTransfer {
 public:
  Noted(comm::Transfer inner, std::vector<std::size_t>& given_up, std::size_t number)
      : inner_(std::move(inner)), given_up_(&given_up), number_(number) {}
  ~Noted() override { given_up_->push_back(number_); }
  Result<bool> poll() override { return inner_.test(); }
  Status wait() override { return inner_.wait(); }

 private:
  comm::Transfer inner_;
  std::vector<std::size_t>* given_up_;
  std::size_t number_;
};

/// What goes wrong on one rank, counted over a group and its duplicates.
struct Faults {
  std::size_t dies_in_call = kNever;  // of collectives, sends and receives
  std::size_t corrupts_send = kNever;
  std::size_t num_calls = 0, num_sends = 0, num_receives = 0;
  std::vector<std::size_t>* given_up = nullptr;  // notes which receives end, in which order

  bool dies_now() { return num_calls++ == dies_in_call; }
};

/// Does what `inner` does, but for its faults.
class FaultyGroup final : public comm::Group {
 public:
  FaultyGroup(comm::Group& inner, Faults& faults)
      : Group(inner.rank(), nodes(inner), inner.deadline()), inner_(&inner), faults_(&faults) {}
  FaultyGroup(std::unique_ptr<comm::Group> inner, Faults& faults) : FaultyGroup(*inner, faults) {
    owned_ = std::move(inner);
  }

  Status health() override { return inner_->health(); }

 private:
  static std::vector<std::size_t> nodes(const comm::Group& group) {
    std::vector<std::size_t> nodes;
    for (std::size_t r = 0; r < group.size(); ++r) nodes.push_back(group.node_of(r));
    return nodes;
  }

  // Any collective is an exchange of pieces.
  Status run(const comm::Exchange& exchange) override {
    if (faults_->dies_now()) return dead();
    std::vector<std::size_t> out_bytes(size()), in_bytes(size());
    std::vector<std::byte> out, in;
    for (std::size_t r = 0; r < size(); ++r) {
      if (exchange.flows(rank(), r)) out_bytes[r] = exchange.outgoing[r].size();
      if (exchange.flows(r, rank())) in_bytes[r] = exchange.incoming[r].size();
      out.insert(out.end(), exchange.outgoing[r].begin(),
                 exchange.outgoing[r].begin() + static_cast<std::ptrdiff_t>(out_bytes[r]));
      in.resize(in.size() + in_bytes[r]);
    }
    LODE_TRY_STATUS(inner_->all_to_all_v(out, out_bytes, in, in_bytes));
    std::size_t at = 0;
    for (std::size_t r = 0; r < size(); at += in_bytes[r++])
      std::copy_n(in.begin() + static_cast<std::ptrdiff_t>(at), in_bytes[r],
                  exchange.incoming[r].begin());
    return {};
  }

  Error dead() { return raise({.code = Code::kInterrupted, .thing = "this rank was killed"}); }

  Error raise(Error error) override {
    inner_->fail(std::move(error));
    return inner_->health().error();
  }

  Result<comm::Transfer> start_send(std::size_t to, std::uint32_t tag,
                                    std::span<const std::byte> bytes) override {
    if (faults_->dies_now()) return dead();
    if (faults_->num_sends++ != faults_->corrupts_send) return inner_->send(to, tag, bytes);
    std::vector<std::byte>& other = corrupted_.emplace_back(bytes.begin(), bytes.end());
    other[other.size() / 2] ^= std::byte{4};
    return inner_->send(to, tag, other);
  }

  Result<comm::Transfer> start_receive(std::size_t from, std::uint32_t tag,
                                       std::span<std::byte> bytes) override {
    if (faults_->dies_now()) return dead();
    if (faults_->given_up == nullptr) return inner_->receive(from, tag, bytes);
    LODE_TRY(comm::Transfer inner, inner_->receive(from, tag, bytes));
    return comm::Transfer(
        std::make_unique<Noted>(std::move(inner), *faults_->given_up, faults_->num_receives++));
  }

  Result<std::unique_ptr<Group>> make_duplicate() override {
    LODE_TRY(std::unique_ptr<Group> twin, inner_->duplicate());
    std::unique_ptr<Group> faulty = std::make_unique<FaultyGroup>(std::move(twin), *faults_);
    return faulty;
  }

  std::list<std::vector<std::byte>> corrupted_;  // must outlive what sends them
  std::unique_ptr<comm::Group> owned_;
  comm::Group* inner_;
  Faults* faults_;
};

}  // namespace lode::eplb::test
