// A copied promise would be counted once and given back twice.
// Refused: deleted
#include <utility>

#include "lode/memory/ledger.h"

lode::memory::Reservation f(lode::memory::Reservation& reservation) {
#ifdef LODE_MUST_FAIL
  return reservation;
#else
  return std::move(reservation);
#endif
}
