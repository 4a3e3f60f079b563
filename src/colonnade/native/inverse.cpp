// Bernstein and Yang's division steps, 62 at a time.
//
// Source: "Fast constant-time gcd computation and modular inversion" (TCHES 2019/3), in the
// arrangement of P. Wuille's "The safegcd implementation in libsecp256k1 explained", variable
// time. Differs: numbers of any length. 62 steps depend on the low 62 bits of f and g alone; they
// are found on single words and then applied to the long numbers as one 2 x 2 matrix.
#include "inverse.h"

#include <algorithm>
#include <vector>

namespace colonnade {
namespace {

using SignedLimb = std::int64_t;
using SignedWide = __int128;
constexpr int kStepBits = 62;
constexpr Limb kStepMask = (Limb{1} << kStepBits) - 1;

// Two's complement digits of 62 bits; only the top one is signed.
using Digits = std::vector<SignedLimb, WipingAllocator<SignedLimb>>;

struct Matrix {
  SignedLimb u, v, q, r;
};

Digits to_digits(const Limb* a, std::size_t limbs, std::size_t digits) {
  Digits result(digits);
  for (std::size_t i = 0; i < digits; ++i) {
    const std::size_t bit = i * kStepBits, limb = bit / kLimbBits, shift = bit % kLimbBits;
    Limb x = limb < limbs ? a[limb] >> shift : 0;
    if (shift > 0 && limb + 1 < limbs) x |= a[limb + 1] << (kLimbBits - shift);
    result[i] = static_cast<SignedLimb>(x & kStepMask);
  }
  return result;
}

void from_digits(Limb* r, std::size_t limbs, const Digits& digits) {
  std::fill(r, r + limbs, 0);
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const std::size_t bit = i * kStepBits, limb = bit / kLimbBits, shift = bit % kLimbBits;
    const Limb x = static_cast<Limb>(digits[i]);
    if (limb < limbs) r[limb] |= x << shift;
    if (shift > 0 && limb + 1 < limbs) r[limb + 1] |= x >> (kLimbBits - shift);
  }
}

// 62 division steps on the low words; returns the new eta and the matrix scaled by 2^62.
SignedLimb division_steps(SignedLimb eta, Limb f, Limb g, Matrix& matrix) {
  Limb u = 1, v = 0, q = 0, r = 1;
  int left = kStepBits;
  for (;;) {
    const int zeros = __builtin_ctzll(g | (~Limb{0} << left));
    g >>= zeros;
    u <<= zeros;
    v <<= zeros;
    eta -= zeros;
    left -= zeros;
    if (left == 0) break;
    Limb cancelled;  // a multiple of f that clears the low bits of g
    if (eta < 0) {
      eta = -eta;
      std::swap(f, g);
      std::swap(u, q);
      std::swap(v, r);
      g = Limb{0} - g;
      q = Limb{0} - q;
      r = Limb{0} - r;
      const int clear = static_cast<int>(std::min<SignedLimb>(eta + 1, left));
      cancelled = (f * g * (f * f - 2)) & (~Limb{0} >> (64 - clear)) & 63;
    } else {
      const int clear = static_cast<int>(std::min<SignedLimb>(eta + 1, left));
      const Limb inverse = f + (((f + 1) & 4) << 1);  // 1/f mod 16
      cancelled = (Limb{0} - inverse * g) & (~Limb{0} >> (64 - clear)) & 15;
    }
    g += f * cancelled;
    q += u * cancelled;
    r += v * cancelled;
  }
  matrix = {static_cast<SignedLimb>(u), static_cast<SignedLimb>(v), static_cast<SignedLimb>(q),
            static_cast<SignedLimb>(r)};
  return eta;
}

// (f, g) = matrix * (f, g) / 2^62, exactly.
void apply(const Matrix& m, Digits& f, Digits& g) {
  SignedWide cf = 0, cg = 0;
  for (std::size_t i = 0; i < f.size(); ++i) {
    cf += static_cast<SignedWide>(m.u) * f[i] + static_cast<SignedWide>(m.v) * g[i];
    cg += static_cast<SignedWide>(m.q) * f[i] + static_cast<SignedWide>(m.r) * g[i];
    if (i > 0) {
      f[i - 1] = static_cast<SignedLimb>(static_cast<Limb>(cf) & kStepMask);
      g[i - 1] = static_cast<SignedLimb>(static_cast<Limb>(cg) & kStepMask);
    }
    cf >>= kStepBits;
    cg >>= kStepBits;
  }
  f.back() = static_cast<SignedLimb>(cf);
  g.back() = static_cast<SignedLimb>(cg);
}

// (d, e) = matrix * (d, e) / 2^62 mod n, kept between -2n and n.
void apply_modulo(const Matrix& m, Digits& d, Digits& e, const Digits& n, Limb n_inverse) {
  const SignedLimb d_sign = d.back() >> 63, e_sign = e.back() >> 63;
  SignedLimb md = (m.u & d_sign) + (m.v & e_sign), me = (m.q & d_sign) + (m.r & e_sign);
  SignedWide cd = static_cast<SignedWide>(m.u) * d[0] + static_cast<SignedWide>(m.v) * e[0];
  SignedWide ce = static_cast<SignedWide>(m.q) * d[0] + static_cast<SignedWide>(m.r) * e[0];
  // The multiples of n that make the low 62 bits zero.
  md -= static_cast<SignedLimb>((n_inverse * static_cast<Limb>(cd) + static_cast<Limb>(md)) &
                                kStepMask);
  me -= static_cast<SignedLimb>((n_inverse * static_cast<Limb>(ce) + static_cast<Limb>(me)) &
                                kStepMask);
  cd += static_cast<SignedWide>(n[0]) * md;
  ce += static_cast<SignedWide>(n[0]) * me;
  cd >>= kStepBits;
  ce >>= kStepBits;
  for (std::size_t i = 1; i < n.size(); ++i) {
    cd += static_cast<SignedWide>(m.u) * d[i] + static_cast<SignedWide>(m.v) * e[i] +
          static_cast<SignedWide>(n[i]) * md;
    ce += static_cast<SignedWide>(m.q) * d[i] + static_cast<SignedWide>(m.r) * e[i] +
          static_cast<SignedWide>(n[i]) * me;
    d[i - 1] = static_cast<SignedLimb>(static_cast<Limb>(cd) & kStepMask);
    e[i - 1] = static_cast<SignedLimb>(static_cast<Limb>(ce) & kStepMask);
    cd >>= kStepBits;
    ce >>= kStepBits;
  }
  d.back() = static_cast<SignedLimb>(cd);
  e.back() = static_cast<SignedLimb>(ce);
}

// x = sign * x + multiple * n with carries settled.
void combine(Digits& x, SignedLimb sign, SignedLimb multiple, const Digits& n) {
  SignedLimb carry = 0;
  for (std::size_t i = 0; i + 1 < x.size(); ++i) {
    carry += sign * x[i] + multiple * n[i];
    x[i] = static_cast<SignedLimb>(static_cast<Limb>(carry) & kStepMask);
    carry >>= kStepBits;
  }
  x.back() = sign * x.back() + multiple * n.back() + carry;
}

bool is_zero(const Digits& x) {
  return std::all_of(x.begin(), x.end(), [](SignedLimb digit) { return digit == 0; });
}

}  // namespace

bool invert_vartime(Limb* r, const Limb* a, const Limb* n, std::size_t limbs) {
  // Two spare bits hold the range -2n to n.
  const std::size_t size = (limbs * kLimbBits + 2 + kStepBits - 1) / kStepBits;
  const Digits modulus = to_digits(n, limbs, size);
  Digits f = modulus, g = to_digits(a, limbs, size), d(size), e(size);
  e[0] = 1;
  Limb n_inverse = n[0];
  for (int i = 0; i < 5; ++i) n_inverse *= 2 - n[0] * n_inverse;

  SignedLimb eta = -1;
  while (!is_zero(g)) {
    Matrix matrix;
    eta = division_steps(eta, static_cast<Limb>(f[0]), static_cast<Limb>(g[0]), matrix);
    apply(matrix, f, g);
    apply_modulo(matrix, d, e, modulus, n_inverse);
  }
  // f is now plus or minus the gcd, and d * a = f mod n.
  const SignedLimb sign = f.back() < 0 ? -1 : 1;
  Digits gcd = f;
  combine(gcd, sign, 0, modulus);
  gcd[0] -= 1;
  if (!is_zero(gcd)) return false;
  if (d.back() < 0) combine(d, 1, 1, modulus);
  combine(d, sign, 0, modulus);
  if (d.back() < 0) combine(d, 1, 1, modulus);
  from_digits(r, limbs, d);
  return true;
}

}  // namespace colonnade
