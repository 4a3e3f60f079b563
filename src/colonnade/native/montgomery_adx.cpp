// x86-64 with BMI2 and ADX: mulx leaves the flags alone, adcx and adox carry in two of them.
//
// The instructions are written out, so the file needs no compiler flag and only runs where
// cpu_features() found them.
#if defined(__x86_64__)

#include "montgomery_rows.h"

namespace colonnade {
namespace {

// One limb: the product's low half, the limb before's high half (carry flag) and t (overflow
// flag) meet in `low`; %[c] and %[h] take turns to hold the high half.
#define COLONNADE_LIMB(offset, high_before, high)  \
  "mulx " offset "(%[a]), %[low], " high "\n\t"    \
  "adcx " high_before ", %[low]\n\t"               \
  "adox " offset "(%[t]), %[low]\n\t"              \
  "movq %[low], " offset "(%[t])\n\t"

// Adds what is left in both flags to the last high half.
#define COLONNADE_LAST_CARRY      \
  "movl $0, %k[low]\n\t"          \
  "adcx %[low], %[c]\n\t"         \
  "adox %[low], %[c]\n\t"

// A row of a length known at compile time, unrolled in full: no loop counter touches the flags.
template <std::size_t kLimbs>
inline __attribute__((always_inline)) Limb unrolled_row(Limb* t, const Limb* a, Limb b) {
  Limb carry, low, high;
  __asm__ __volatile__(
      "xorl %k[c], %k[c]\n\t"
      ".set colonnade_offset, 0\n\t"
      ".rept %c[pairs]\n\t"
      COLONNADE_LIMB("colonnade_offset", "%[c]", "%[h]")
      COLONNADE_LIMB("colonnade_offset+8", "%[h]", "%[c]")
      ".set colonnade_offset, colonnade_offset+16\n\t"
      ".endr\n\t"
      COLONNADE_LAST_CARRY
      : [c] "=&r"(carry), [low] "=&r"(low), [h] "=&r"(high)
      : [t] "r"(t), [a] "r"(a), "d"(b), [pairs] "i"(kLimbs / 2)
      : "cc", "memory");
  return carry;
}

// A row of any number of blocks; lea and jrcxz count without touching the flags.
inline Limb looped_row(Limb* t, const Limb* a, std::size_t blocks, Limb b) {
  Limb carry, low, high;
  __asm__ __volatile__(
      "xorl %k[c], %k[c]\n\t"
      ".p2align 4\n"
      "1:\n\t"
      COLONNADE_LIMB("0", "%[c]", "%[h]")
      COLONNADE_LIMB("8", "%[h]", "%[c]")
      COLONNADE_LIMB("16", "%[c]", "%[h]")
      COLONNADE_LIMB("24", "%[h]", "%[c]")
      "leaq 32(%[a]), %[a]\n\t"
      "leaq 32(%[t]), %[t]\n\t"
      "leaq -1(%[n]), %[n]\n\t"
      "jrcxz 2f\n\t"
      "jmp 1b\n"
      "2:\n\t"
      COLONNADE_LAST_CARRY
      : [c] "=&r"(carry), [low] "=&r"(low), [h] "=&r"(high), [t] "+r"(t), [a] "+r"(a),
        [n] "+c"(blocks)
      : "d"(b)
      : "cc", "memory");
  return carry;
}

struct AdxRow {
  // The switch is on a length, which is public, and one jump that repeats is predicted.
  static inline __attribute__((always_inline)) Limb add_product(Limb* t, const Limb* a,
                                                                std::size_t limbs, Limb b) {
    switch (limbs / kBlockLimbs) {
      case 1: return unrolled_row<4>(t, a, b);
      case 2: return unrolled_row<8>(t, a, b);
      case 3: return unrolled_row<12>(t, a, b);
      case 4: return unrolled_row<16>(t, a, b);
      case 5: return unrolled_row<20>(t, a, b);
      case 6: return unrolled_row<24>(t, a, b);
      case 7: return unrolled_row<28>(t, a, b);
      case 8: return unrolled_row<32>(t, a, b);
      case 9: return unrolled_row<36>(t, a, b);
      case 10: return unrolled_row<40>(t, a, b);
      case 11: return unrolled_row<44>(t, a, b);
      case 12: return unrolled_row<48>(t, a, b);
      case 13: return unrolled_row<52>(t, a, b);
      case 14: return unrolled_row<56>(t, a, b);
      case 15: return unrolled_row<60>(t, a, b);
      case 16: return unrolled_row<64>(t, a, b);
      default: return looped_row(t, a, limbs / kBlockLimbs, b);
    }
  }
};

}  // namespace

const Kernel& adx_kernel() {
  static const Kernel kernel = row_kernel<AdxRow>("adx");
  return kernel;
}

}  // namespace colonnade

#endif
