#pragma once

#include <immintrin.h>

#include "lode/kernels/panel.h"

// What the Marlin weights and their scales share.

namespace lode::kernels::avx512 {

/// Four rows of four 16-byte lanes become four lanes of four rows.
LODE_KERNEL_INLINE void transpose_lanes(__m512i* row) noexcept {
  const __m512i low01 = _mm512_shuffle_i64x2(row[0], row[1], 0x44);
  const __m512i high01 = _mm512_shuffle_i64x2(row[0], row[1], 0xEE);
  const __m512i low23 = _mm512_shuffle_i64x2(row[2], row[3], 0x44);
  const __m512i high23 = _mm512_shuffle_i64x2(row[2], row[3], 0xEE);
  row[0] = _mm512_shuffle_i64x2(low01, low23, 0x88);
  row[1] = _mm512_shuffle_i64x2(low01, low23, 0xDD);
  row[2] = _mm512_shuffle_i64x2(high01, high23, 0x88);
  row[3] = _mm512_shuffle_i64x2(high01, high23, 0xDD);
}

}  // namespace lode::kernels::avx512
