// Makes text from a peer, a store, a file or a user safe for a message: it cannot move a terminal's cursor, end a line
// or forge one. The only place that makes them so: call it where such bytes first become a text.
#pragma once

#include <string>
#include <string_view>

namespace gloo_bypass {

// Writes each byte of a control character (below 0x20, 0x7f, U+0080 to U+009F) and each byte of invalid UTF-8 as \xNN.
// Keeps backslashes, so that escaping twice changes nothing.
std::string printable(std::string_view text);

}  // namespace gloo_bypass
