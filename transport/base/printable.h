// Text from a peer, a file or a user, as a message may show it: without what would move a terminal's cursor, end a line
// or forge one.
#pragma once

#include <string>
#include <string_view>

namespace gloo_bypass {

// `text` with each byte of a control character (below 0x20, 0x7f, U+0080 to U+009F) and each byte that is not valid
// UTF-8 as \xNN. A backslash stays one: what was escaped once is not escaped again.
std::string printable(std::string_view text);

}  // namespace gloo_bypass
