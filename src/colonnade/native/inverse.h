// The inverse of one number modulo an odd n, in variable time.
#pragma once

#include "limbs.h"

namespace colonnade {

// r = 1/a mod n for plain (not Montgomery) a < n. False, with r untouched, where a has none.
bool invert_vartime(Limb* r, const Limb* a, const Limb* n, std::size_t limbs);

}  // namespace colonnade
