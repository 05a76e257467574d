#pragma once

// What must hold of a group of any kind, as bodies of ranks: comm_test runs them on one rank and on
// threads, tests/mpi on processes. Each says what it found wrong as an Error.

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "lode/base/fmt.h"
#include "lode/comm/exchange_rows.h"
#include "lode/comm/group.h"

namespace lode::comm::cases {

inline Status expect(bool right, std::string_view what) {
  if (right) return {};
  return Error{.code = Code::kCheckFailed, .thing = std::string(what), .found = "it does not hold"};
}

/// Bytes that say who made them, for whom and when.
inline std::vector<std::byte> pattern(std::size_t from, std::size_t to, std::size_t turn,
                                      std::size_t bytes) {
  std::size_t state = from * 1009 + to * 101 + turn;
  std::vector<std::byte> made(bytes);
  for (std::byte& one : made) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's, for 64 bits
    one = static_cast<std::byte>(state >> 56);
  }
  return made;
}

inline void append(std::vector<std::byte>& all, const std::vector<std::byte>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

inline Status gathers(Group& group, std::size_t turn) {
  const std::size_t here = group.rank(), ranks = group.size();
  const std::size_t bytes = turn % 7 * 13;  // none at times
  std::vector<std::byte> want, got(ranks * bytes), want_v;
  std::vector<std::size_t> sizes;
  for (std::size_t r = 0; r < ranks; ++r) {
    append(want, pattern(r, 0, turn, bytes));
    sizes.push_back((r + turn) % 3 * 29);
    append(want_v, pattern(r, 1, turn, sizes[r]));
  }
  LODE_TRY_STATUS(group.all_gather(pattern(here, 0, turn, bytes), got));
  LODE_TRY_STATUS(expect(got == want, "all_gather gives the pieces in rank order"));
  std::vector<std::byte> in_place(ranks * bytes);
  const auto own = std::span(in_place).subspan(here * bytes, bytes);
  const auto mine = pattern(here, 0, turn, bytes);
  std::copy(mine.begin(), mine.end(), own.begin());
  LODE_TRY_STATUS(group.all_gather(own, in_place));
  LODE_TRY_STATUS(expect(in_place == want, "all_gather works in place"));
  std::vector<std::byte> got_v(want_v.size());
  LODE_TRY_STATUS(group.all_gather_v(pattern(here, 1, turn, sizes[here]), got_v, sizes));
  return expect(got_v == want_v, "all_gather_v gives pieces of several sizes in rank order");
}

/// Rows from `from` to `to` in this turn, the same on every rank; often none.
inline std::int32_t rows_of(std::size_t from, std::size_t to, std::size_t turn) {
  std::mt19937 random(static_cast<unsigned>(turn * 7919 + from * 31 + to));
  const auto dice = static_cast<unsigned>(random());
  return dice % 3 == 0 ? 0 : static_cast<std::int32_t>(dice / 3 % 40);
}

inline Status exchanges_rows(Group& group, std::size_t turn) {
  const std::size_t here = group.rank(), row_bytes = 1 + turn % 5 * 17;
  std::vector<std::byte> out, want;
  std::vector<std::int32_t> counts, wanted_counts, got_counts(group.size());
  for (std::size_t r = 0; r < group.size(); ++r) {
    counts.push_back(rows_of(here, r, turn));
    append(out, pattern(here, r, turn, static_cast<std::size_t>(counts[r]) * row_bytes));
    wanted_counts.push_back(rows_of(r, here, turn));
    append(want, pattern(r, here, turn, static_cast<std::size_t>(wanted_counts[r]) * row_bytes));
  }
  std::vector<std::byte> got(want.size() + 3);  // room to spare
  LODE_TRY(const std::size_t rows,
           exchange_counts_and_rows(group, {out, counts}, row_bytes, {got, got_counts}));
  got.resize(want.size());
  LODE_TRY_STATUS(expect(got_counts == wanted_counts, "counts come from every rank"));
  LODE_TRY_STATUS(expect(rows * row_bytes == want.size(), "all rows are counted"));
  return expect(got == want, "rows come from every rank, in rank order");
}

inline Status broadcasts(Group& group, std::size_t turn) {
  const std::size_t root = turn % group.size();
  const auto want = pattern(root, 9, turn, turn % 4 * 100);
  std::vector<std::byte> bytes(want.size());
  if (group.rank() == root) bytes = want;
  LODE_TRY_STATUS(group.broadcast(bytes, root));
  return expect(bytes == want, "broadcast gives the root's bytes");
}

inline Status agrees(Group& group, std::size_t turn) {
  LODE_TRY_STATUS(group.agree({}));
  const std::size_t first = turn % group.size();
  Status mine;
  if (group.rank() >= first) {
    mine = Error{.code = Code::kNoSpace, .thing = fmt::format("thing of {}", group.rank())};
  }
  const Status all = group.agree(mine);
  LODE_TRY_STATUS(expect(!all && all.error().code == Code::kNoSpace &&
                             all.error().thing == fmt::format("thing of {}", first) &&
                             all.error().where == fmt::format("rank {}", first),
                         "all ranks agree on the Error of the lowest one that has one"));
  return group.health();
}

/// To every rank two messages of one tag, and one of another tag that is received first.
inline Status sends(Group& group, std::size_t turn) {
  const std::size_t here = group.rank();
  const std::size_t sizes[] = {turn % 5 * 1000, 8, 70'000};
  const std::uint32_t tags[] = {7, 7, kMaxTag};
  const std::size_t order[] = {2, 0, 1};
  std::vector<std::vector<std::byte>> out, in;
  std::vector<Transfer> transfers;
  out.reserve(3 * group.size());
  in.reserve(3 * group.size());
  for (std::size_t r = 0; r < group.size(); ++r) {
    for (std::size_t i = 0; r != here && i < 3; ++i) {
      LODE_TRY(Transfer sent,
               group.send(r, tags[i], out.emplace_back(pattern(here, r, i, sizes[i]))));
      transfers.push_back(std::move(sent));
    }
  }
  for (std::size_t r = 0; r < group.size(); ++r) {
    for (const std::size_t i : order) {
      if (r == here) continue;
      LODE_TRY(Transfer got, group.receive(r, tags[i], in.emplace_back(sizes[i])));
      transfers.push_back(std::move(got));
    }
  }
  // A moment of polling, as a migration does, then to the end.
  for (Transfer& transfer : transfers) LODE_TRY_STATUS(transfer.test());
  for (Transfer& transfer : transfers) LODE_TRY_STATUS(transfer.wait());
  std::size_t at = 0;
  for (std::size_t r = 0; r < group.size(); ++r) {
    for (const std::size_t i : order) {
      if (r == here) continue;
      LODE_TRY_STATUS(expect(in[at++] == pattern(r, here, i, sizes[i]), "messages keep to tags"));
    }
  }
  return {};
}

inline Status all_of_it(Group& group, std::size_t turn) {
  LODE_TRY_STATUS(gathers(group, turn));
  LODE_TRY_STATUS(exchanges_rows(group, turn));
  LODE_TRY_STATUS(broadcasts(group, turn));
  LODE_TRY_STATUS(agrees(group, turn));
  LODE_TRY_STATUS(sends(group, turn));
  return group.barrier();
}

/// The whole, `turns` times; then on a duplicate while the first has messages of its own out.
inline Status everything_holds(Group& group, std::size_t turns) {
  for (std::size_t turn = 0; turn < turns; ++turn) LODE_TRY_STATUS(all_of_it(group, turn));
  LODE_TRY(const std::unique_ptr<Group> twin, group.duplicate());
  const std::size_t next = (group.rank() + 1) % group.size();
  const std::size_t before = (group.rank() + group.size() - 1) % group.size();
  const auto out = pattern(group.rank(), next, 0, 300'000);
  std::vector<std::byte> in(out.size());
  Transfer sent, received;
  if (group.size() > 1) {
    LODE_TRY(sent, group.send(next, 1, out));
    LODE_TRY_STATUS(all_of_it(*twin, turns));
    LODE_TRY(received, group.receive(before, 1, in));
    LODE_TRY_STATUS(received.wait());
    LODE_TRY_STATUS(sent.wait());
    LODE_TRY_STATUS(expect(in == pattern(before, group.rank(), 0, out.size()), "twins keep apart"));
  }
  return all_of_it(*twin, turns + 1);
}

// What fails: each returns the Error of its rank's call, and never nothing.

inline Status another_size(Group& group) {
  std::vector<std::byte> mine(group.rank() == 1 ? 3 : 4), all(mine.size() * group.size());
  return group.all_gather(mine, all);
}

inline Status another_operation(Group& group) {
  std::byte all[64] = {};
  if (group.rank() != 1) return group.barrier();
  return group.all_gather(std::span(all).first(1), std::span(all).first(group.size()));
}

inline Status another_root(Group& group) {
  std::byte one[1] = {};
  LODE_TRY_STATUS(group.broadcast(one, group.rank() == 1 ? 1 : 0));
  return group.barrier();
}

inline Status spans_that_do_not_fit(Group& group) {
  std::byte all[64] = {};
  const std::size_t room = group.size() + (group.rank() == 1 ? 1 : 0);
  return group.all_gather(std::span(all).first(1), std::span(all).first(room));
}

inline Status message_of_another_size(Group& group) {
  std::byte bytes[8] = {};
  if (group.rank() == 0) {
    LODE_TRY(Transfer sent, group.send(1, 5, std::span(bytes).first(7)));
    LODE_TRY_STATUS(sent.wait());
  }
  if (group.rank() == 1) {
    LODE_TRY(Transfer received, group.receive(0, 5, bytes));
    LODE_TRY_STATUS(received.wait());
  }
  return group.barrier();
}

inline Status one_refuses(Group& group) {
  LODE_TRY_STATUS(group.barrier());
  if (group.rank() == 1) {
    return Error{.code = Code::kOverBudget, .thing = "ring of reads", .where = "layer 3"};
  }
  while (true) LODE_TRY_STATUS(group.barrier());
}

inline Status one_leaves(Group& group) {
  if (group.rank() == 1) return {};
  return group.barrier();
}

inline Status nobody_receives(Group& group) {
  const std::vector<std::byte> bytes(1'000'000);
  if (group.rank() != 1) return group.barrier();
  LODE_TRY(Transfer sent, group.send(0, 5, bytes));
  return sent.wait();
}

}  // namespace lode::comm::cases
