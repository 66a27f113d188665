-- Wireshark dissector of gloo-bypass's protocol over UDP: every field of transport/wire/packet.h, on any port, recognised by its magic.
--
--   tshark -X lua_script:tools/wireshark/gloo_bypass.lua -r capture.pcapng
--   or copy the file into Wireshark's folder of personal Lua plug-ins (Help, About, Folders). Later Wiresharks run no Lua scripts as root.
--
-- Captures with a snap length are read as far as they go: a note says what was cut off, and a checksum that cannot be computed
-- is "not checked". A wrong checksum or an impossible length is an expert item, never a Lua error. Tried with Wireshark 4.0 (Lua 5.2), 4.4 and 4.6 (5.4).

local gloo_bypass = Proto("gloo_bypass", "gloo-bypass")

local MAGIC = 0x4267
local VERSION = 1
local SEALED_VERSION = 2 -- transport/wire/sealed_packet.h: the rest is encrypted
local SEALED_BYTES, TAG_BYTES = 16, 16
local COMMON_BYTES, SHORT_BYTES = 56, 44
local MESSAGE_BYTES = 44
local MAX_PADDING = 63
local MAX_RANGES = 64
local MAX_HEADER = COMMON_BYTES + 8 * MAX_RANGES + MESSAGE_BYTES + MAX_PADDING + 1

local types = {
  [1] = "HELLO", [2] = "ACK", [3] = "PROBE", [4] = "PROBE-REPLY", [5] = "RESET", [6] = "REPAIR", [7] = "PIECE",
  [16] = "DATA", [17] = "ANNOUNCE", [18] = "GRANT", [19] = "WITHDRAW", [20] = "CLOSE", [21] = "CREDIT",
  [22] = "CHUNK", [23] = "GRANTED-CHUNK",
}
local FIRST_SEQUENCED = 16
-- The header without the limits.
local has_short_header = { [22] = true, [23] = true }
local reasons = {
  [0] = "invalid argument", [1] = "configuration", [2] = "unavailable", [3] = "exhausted", [4] = "timed out", [5] = "peer vanished",
  [6] = "peer closed", [7] = "peer violated the protocol", [8] = "message too long", [9] = "cancelled", [10] = "internal",
}
-- Our own collectives (collectives/network/wire.h, collectives/operation.h): what a tag says, and an operation's header.
local OPERATION_TAG, CONTROL_TAG, PROGRAM_TAG = 0xa0, 0xa1, 0xa2
local OPERATION_MAGIC, OPERATION_BYTES, DESCRIPTION_AT = 0x4f436267, 48, 16
local operation_kinds = {
  [0] = "all-reduce", [1] = "reduce", [2] = "reduce-scatter", [3] = "all-gather", [4] = "gather", [5] = "broadcast", [6] = "scatter",
  [7] = "all-to-all", [8] = "barrier",
}
local element_types = {
  [0] = "bool", [1] = "uint8", [2] = "int8", [3] = "int16", [4] = "int32", [5] = "int64", [6] = "float16", [7] = "bfloat16",
  [8] = "float32", [9] = "float64",
}
local reductions = {
  [0] = "sum", [1] = "average", [2] = "product", [3] = "minimum", [4] = "maximum", [5] = "bitwise and", [6] = "bitwise or",
  [7] = "bitwise exclusive or",
}
local algorithms = {
  [0] = "one-shot", [1] = "direct", [2] = "ring", [3] = "bidirectional-ring", [4] = "halving-doubling", [5] = "double-tree",
  [6] = "binomial", [7] = "scatter-all-gather", [8] = "dissemination", [9] = "two-level-ring", [10] = "two-level-one-shot",
  [11] = "recursive-doubling", [12] = "two-level-rails",
}
local statuses = { [0] = "wrong", [1] = "right", [2] = "not checked: not all of it was captured", [3] = "not checked" }
local WRONG, RIGHT, CUT, UNCHECKED = 0, 1, 2, 3

local f = {
  magic = ProtoField.uint16("gloo_bypass.magic", "Magic", base.HEX),
  version = ProtoField.uint8("gloo_bypass.version", "Version"),
  type = ProtoField.uint8("gloo_bypass.type", "Type", base.DEC, types),
  sealed_type = ProtoField.uint8("gloo_bypass.type", "Type", base.DEC, types, 0x7f),
  key_phase = ProtoField.uint8("gloo_bypass.key_phase", "Phase of the key", base.DEC, nil, 0x80),
  packet_number = ProtoField.uint32("gloo_bypass.packet_number", "Packet number (low 32 bits)"),
  sealed = ProtoField.bytes("gloo_bypass.sealed", "Encrypted"),
  tag = ProtoField.bytes("gloo_bypass.tag", "Authentication tag"),
  checksum = ProtoField.uint32("gloo_bypass.checksum", "Header checksum (CRC-32C)", base.HEX),
  checksum_status = ProtoField.uint8("gloo_bypass.checksum.status", "Header checksum status", base.DEC, statuses),
  receiver = ProtoField.uint64("gloo_bypass.receiver", "Session id of the receiver", base.HEX),
  flags = ProtoField.uint8("gloo_bypass.flags", "Flags", base.HEX),
  flag_ack = ProtoField.bool("gloo_bypass.flags.ack_requested", "Acknowledgement requested", 8, nil, 0x01),
  flag_echo = ProtoField.bool("gloo_bypass.flags.echo", "Echo fields are valid", 8, nil, 0x02),
  flag_payload = ProtoField.bool("gloo_bypass.flags.payload_checksum", "Payload has a checksum", 8, nil, 0x04),
  flag_hello = ProtoField.bool("gloo_bypass.flags.hello_seen", "The sender has the receiver's hello", 8, nil, 0x08),
  flag_covered = ProtoField.bool("gloo_bypass.flags.covered", "Repair frames for it may follow", 8, nil, 0x10),
  ranges = ProtoField.uint8("gloo_bypass.sack.count", "SACK ranges"),
  header_length = ProtoField.uint16("gloo_bypass.header_length", "Header length"),
  payload_checksum = ProtoField.uint32("gloo_bypass.payload_checksum", "Payload checksum (CRC-32C)", base.HEX),
  payload_status = ProtoField.uint8("gloo_bypass.payload_checksum.status", "Payload checksum status", base.DEC, statuses),
  sequence = ProtoField.uint32("gloo_bypass.sequence", "Sequence number"),
  next_sequence = ProtoField.uint32("gloo_bypass.next_sequence", "Next sequence number"),
  repeated = ProtoField.bool("gloo_bypass.repeated", "Not newer than a frame before: retransmitted, or overtaken"),
  acknowledged = ProtoField.uint32("gloo_bypass.acknowledged", "Acknowledged before"),
  timestamp = ProtoField.uint32("gloo_bypass.timestamp", "Sent at (64 ns)"),
  echo = ProtoField.uint32("gloo_bypass.echo", "Timestamp echo (64 ns)"),
  echo_delay = ProtoField.uint32("gloo_bypass.echo_delay", "Time since it arrived (64 ns)"),
  message_limit = ProtoField.uint32("gloo_bypass.message_limit", "Message limit"),
  byte_limit = ProtoField.uint64("gloo_bypass.byte_limit", "Byte limit"),
  sack_begin = ProtoField.uint32("gloo_bypass.sack.begin", "SACK begin"),
  sack_end = ProtoField.uint32("gloo_bypass.sack.end", "SACK end"),
  message_id = ProtoField.uint64("gloo_bypass.message.id", "Message id"),
  message_tag = ProtoField.uint64("gloo_bypass.message.tag", "Tag", base.HEX),
  message_length = ProtoField.uint64("gloo_bypass.message.length", "Length of the whole message"),
  remote_offset = ProtoField.uint64("gloo_bypass.message.remote_offset", "Remote offset"),
  chunk_offset = ProtoField.uint64("gloo_bypass.chunk.offset", "Chunk offset"),
  chunk_length = ProtoField.uint16("gloo_bypass.chunk.length", "Chunk length"),
  message_kind = ProtoField.uint8("gloo_bypass.message.kind", "Kind"),
  message_flags = ProtoField.uint8("gloo_bypass.message.flags", "Message flags", base.HEX),
  flag_granted = ProtoField.bool("gloo_bypass.message.flags.granted", "Sent on a grant", 8, nil, 0x01),
  operation_number = ProtoField.uint64("gloo_bypass.operation.number", "Operation"),
  operation_message = ProtoField.uint32("gloo_bypass.operation.message", "Message of the operation"),
  operation_kind = ProtoField.uint8("gloo_bypass.operation.kind", "Kind", base.DEC, operation_kinds),
  operation_type = ProtoField.uint8("gloo_bypass.operation.type", "Element type", base.DEC, element_types),
  operation_reduction = ProtoField.uint8("gloo_bypass.operation.reduction", "Reduction", base.DEC, reductions, 0x7f),
  operation_root = ProtoField.uint32("gloo_bypass.operation.root", "Root"),
  operation_count = ProtoField.uint64("gloo_bypass.operation.count", "Elements of each rank"),
  operation_algorithm = ProtoField.uint8("gloo_bypass.operation.algorithm", "Algorithm", base.DEC, algorithms),
  program_tag = ProtoField.uint32("gloo_bypass.program_tag", "The program's own tag"),
  padding = ProtoField.bytes("gloo_bypass.padding", "Padding"),
  payload = ProtoField.bytes("gloo_bypass.payload", "Payload"),
  sent_messages = ProtoField.uint64("gloo_bypass.close.messages", "Messages sent in total"),
  probe_size = ProtoField.uint16("gloo_bypass.probe.size", "Datagram size"),
  reason = ProtoField.uint32("gloo_bypass.reset.reason", "Reason", base.DEC, reasons),
  repair_first = ProtoField.uint32("gloo_bypass.repair.first", "First frame covered"),
  repair_sources = ProtoField.uint8("gloo_bypass.repair.sources", "Frames covered"),
  repair_index = ProtoField.uint8("gloo_bypass.repair.index", "Number of this repair frame"),
  repair_count = ProtoField.uint8("gloo_bypass.repair.count", "Repair frames of the block"),
  piece_frame = ProtoField.uint32("gloo_bypass.piece.frame", "Sequence number of the frame"),
  piece_symbol = ProtoField.uint16("gloo_bypass.piece.symbol", "Length of the frame's symbol"),
  piece_index = ProtoField.uint8("gloo_bypass.piece.index", "Number of this piece"),
  piece_small = ProtoField.bool("gloo_bypass.piece.small", "Small pieces"),
  recovered = ProtoField.uint32("gloo_bypass.recovered", "Frames recovered in total"),
  hello_sender = ProtoField.uint64("gloo_bypass.hello.sender", "Session id of the sender", base.HEX),
  hello_rendezvous = ProtoField.uint64("gloo_bypass.hello.rendezvous_bytes", "Rendezvous above (bytes)"),
  hello_buffer = ProtoField.uint64("gloo_bypass.hello.max_buffer_bytes", "Largest buffer (bytes)"),
  hello_sequence = ProtoField.uint32("gloo_bypass.hello.initial_sequence", "Initial sequence number"),
  hello_datagram = ProtoField.uint32("gloo_bypass.hello.max_datagram_bytes", "Largest datagram (bytes)"),
  hello_lossless = ProtoField.bool("gloo_bypass.hello.lossless", "Lossless link"),
  hello_checksum = ProtoField.bool("gloo_bypass.hello.payload_checksum", "Payload checksums"),
  hello_repair = ProtoField.bool("gloo_bypass.hello.repair", "Understands repair frames", 8, nil, 0x01),
  hello_pieces = ProtoField.bool("gloo_bypass.hello.pieces", "Understands pieces of frames", 8, nil, 0x02),
  hello_chunks = ProtoField.bool("gloo_bypass.hello.chunks", "Understands chunks with short headers", 8, nil, 0x04),
  hello_small = ProtoField.bool("gloo_bypass.hello.small", "Sends and takes small datagrams", 8, nil, 0x08),
}
local fields = {}
for _, field in pairs(f) do fields[#fields + 1] = field end
gloo_bypass.fields = fields

local e = {
  header_checksum = ProtoExpert.new("gloo_bypass.expert.checksum", "The header's checksum is wrong", expert.group.CHECKSUM, expert.severity.ERROR),
  payload_checksum = ProtoExpert.new("gloo_bypass.expert.payload_checksum", "The payload's checksum is wrong", expert.group.CHECKSUM,
                                     expert.severity.ERROR),
  malformed = ProtoExpert.new("gloo_bypass.expert.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR),
  version = ProtoExpert.new("gloo_bypass.expert.version", "Another version of the protocol: only the header is told", expert.group.UNDECODED,
                            expert.severity.WARN),
  cut = ProtoExpert.new("gloo_bypass.expert.cut", "Cut off by the capture's snap length", expert.group.UNDECODED, expert.severity.NOTE),
  repeated = ProtoExpert.new("gloo_bypass.expert.repeated", "Retransmitted, or overtaken", expert.group.SEQUENCE, expert.severity.NOTE),
  reset = ProtoExpert.new("gloo_bypass.expert.reset", "The sender has failed or aborted", expert.group.SEQUENCE, expert.severity.WARN),
}
local experts = {}
for _, item in pairs(e) do experts[#experts + 1] = item end
gloo_bypass.experts = experts

gloo_bypass.prefs.check_payload = Pref.bool("Check the payload's checksum", true, "Where the payload was captured whole")

-- Lua 5.2 has bit32, Wireshark brings bit, Lua 5.4 has operators (which older ones cannot even parse).
local xor, band, shift_right
if bit32 then
  xor, band, shift_right = bit32.bxor, bit32.band, bit32.rshift
elseif bit then
  xor, band, shift_right = bit.bxor, bit.band, bit.rshift
else
  xor, band, shift_right = load("return function(a, b) return a ~ b end, function(a, b) return a & b end, function(a, n) return a >> n end")()
end

local crc_table = {}
for i = 0, 255 do
  local value = i
  for _ = 1, 8 do
    local odd = band(value, 1) == 1
    value = shift_right(value, 1)
    if odd then value = xor(value, 0x82f63b78) end
  end
  crc_table[i] = value
end

-- CRC-32C of strings, one after the other.
local function crc32c(...)
  local crc = 0xffffffff
  for _, text in ipairs({ ... }) do
    for i = 1, #text do crc = xor(shift_right(crc, 8), crc_table[band(xor(crc, text:byte(i)), 0xff)]) end
  end
  return xor(crc, 0xffffffff) % 0x100000000
end

-- The newest sequence number of each session, and the older frames; filled in Wireshark's first pass through the capture.
local newest = {}
local older = {}
function gloo_bypass.init()
  newest = {}
  older = {}
end

local function note_sequence(pinfo, receiver, sequence)
  if not pinfo.visited then
    local session = tostring(pinfo.src) .. " " .. tostring(pinfo.dst) .. " " .. receiver
    local before = newest[session]
    local ahead = before and (sequence - before) % 0x100000000
    if before and (ahead == 0 or ahead >= 0x80000000) then
      older[pinfo.number] = true
    else
      newest[session] = sequence
    end
  end
  return older[pinfo.number] or false
end

-- A cursor over the datagram: knows how much was captured, and adds fields as far as that goes.
local Reader = {}
Reader.__index = Reader

function Reader:has(bytes) return self.at + bytes <= self.limit and self.at + bytes <= self.tvb:len() end

-- The field's range, or nil if it lies beyond the capture or the current part.
function Reader:add(tree, field, bytes)
  if self.stopped or not self:has(bytes) then
    if not self.stopped then
      self.stopped = true
      if self.at + bytes <= self.limit then
        tree:add_proto_expert_info(e.cut)
      else
        tree:add_proto_expert_info(e.malformed, "The header ends within " .. self.what)
      end
    end
    return nil
  end
  local range = self.tvb(self.at, bytes)
  self.at = self.at + bytes
  local item = field and tree:add_le(field, range)
  return range, item
end

local function number64(range) return range and tostring(range:le_uint64()) or "?" end

-- Tags have their kind in the most significant byte; they are little-endian on the wire.
local function tag_kind(tag) return tag(7, 1):uint() end

local function add_tag(tag, tree, info)
  local kind = tag_kind(tag)
  if kind == OPERATION_TAG then
    tree:add(f.operation_number, tag(4, 3), UInt64(tag(4, 3):le_uint()))
    tree:add_le(f.operation_message, tag(0, 4))
    info[#info + 1] = string.format("operation %d.%d", tag(4, 3):le_uint(), tag(0, 4):le_uint())
  elseif kind == CONTROL_TAG then
    info[#info + 1] = "control message of collectives"
  elseif kind == PROGRAM_TAG then
    tree:add_le(f.program_tag, tag(0, 4))
    info[#info + 1] = "tag " .. tag(0, 4):le_uint()
  end
end

-- The header of an operation, which begins the first message of it to each peer.
local function add_operation(tvb, at, tree, info)
  if tvb:len() - at < OPERATION_BYTES or tvb(at, 4):le_uint() ~= OPERATION_MAGIC then return end
  local part = tree:add(gloo_bypass, tvb(at, OPERATION_BYTES), "Collective operation")
  part:add(f.operation_algorithm, tvb(at + 4, 1))
  part:add_le(f.operation_number, tvb(at + 8, 8))
  for i, field in ipairs({ f.operation_kind, f.operation_type, f.operation_reduction }) do
    part:add(field, tvb(at + DESCRIPTION_AT + i - 1, 1))
  end
  part:add_le(f.operation_root, tvb(at + DESCRIPTION_AT + 4, 4))
  part:add_le(f.operation_count, tvb(at + DESCRIPTION_AT + 8, 8))
  local kind = tvb(at + DESCRIPTION_AT, 1):uint()
  local text = operation_kinds[kind] or ("kind " .. kind)
  if text ~= "barrier" then
    local kind_of_element = tvb(at + DESCRIPTION_AT + 1, 1):uint()
    text = string.format("%s of %s %s", text, number64(tvb(at + DESCRIPTION_AT + 8, 8)), element_types[kind_of_element] or "?")
  end
  info[#info + 1] = text .. ", " .. (algorithms[tvb(at + 4, 1):uint()] or "?")
end

local function add_message(reader, tree, info)
  local part = tree:add(gloo_bypass, reader.tvb(reader.at, math.max(0, math.min(MESSAGE_BYTES, reader.tvb:len() - reader.at))), "Message")
  reader.what = "the message's description"
  local id = reader:add(part, f.message_id, 8)
  local tag = reader:add(part, f.message_tag, 8)
  local length = reader:add(part, f.message_length, 8)
  reader:add(part, f.remote_offset, 8)
  local offset = reader:add(part, f.chunk_offset, 8)
  local chunk = reader:add(part, f.chunk_length, 2)
  reader:add(part, f.message_kind, 1)
  local flags, item = reader:add(part, f.message_flags, 1)
  if flags then item:add(f.flag_granted, flags) end
  info[#info + 1] = "msg " .. number64(id)
  if chunk then info[#info + 1] = string.format("[%s +%d) of %s", number64(offset), chunk:le_uint(), number64(length)) end
  if tag then add_tag(tag, part, info) end
  local begins_operation = chunk and tag_kind(tag) == OPERATION_TAG and offset:le_uint64() == UInt64(0)
  return chunk and chunk:le_uint(), begins_operation
end

local function add_chunk(reader, tree, info)
  reader.what = "where the chunk lies"
  local id = reader:add(tree, f.message_id, 8)
  local offset = reader:add(tree, f.chunk_offset, 8)
  info[#info + 1] = "msg " .. number64(id)
  if offset then
    info[#info + 1] = string.format("[%s +%d)", number64(offset), reader.tvb:reported_len() - reader.limit)
  end
end

local function add_hello(reader, tree, info)
  reader.what = "the hello"
  local sender = reader:add(tree, f.hello_sender, 8)
  reader:add(tree, f.hello_rendezvous, 8)
  reader:add(tree, f.hello_buffer, 8)
  reader:add(tree, f.hello_sequence, 4)
  local datagram = reader:add(tree, f.hello_datagram, 4)
  reader:add(tree, f.hello_lossless, 1)
  reader:add(tree, f.hello_checksum, 1)
  local capabilities = reader:add(tree, f.hello_repair, 1)
  if capabilities then
    tree:add(f.hello_pieces, capabilities)
    tree:add(f.hello_chunks, capabilities)
    tree:add(f.hello_small, capabilities)
  end
  reader:add(tree, nil, 5) -- zero
  if sender then info[#info + 1] = "session " .. sender:le_uint64():tohex() end
  if datagram then info[#info + 1] = "datagrams up to " .. datagram:le_uint() end
end

local function add_repair(reader, tree, info)
  reader.what = "what the repair frame covers"
  local first = reader:add(tree, f.repair_first, 4)
  local sources = reader:add(tree, f.repair_sources, 1)
  local index = reader:add(tree, f.repair_index, 1)
  local count = reader:add(tree, f.repair_count, 1)
  reader:add(tree, nil, 1) -- zero
  if count then
    info[#info + 1] = string.format("%d of %d for %d frames from %d", index:uint() + 1, count:uint(), sources:uint(), first:le_uint())
  end
end

local function add_piece(reader, tree, info)
  reader.what = "which part of which frame it is"
  local frame = reader:add(tree, f.piece_frame, 4)
  local symbol = reader:add(tree, f.piece_symbol, 2)
  local index = reader:add(tree, f.piece_index, 1)
  reader:add(tree, f.piece_small, 1)
  if index then
    info[#info + 1] = string.format("number %d of the %d bytes of frame %d", index:uint() + 1, symbol:le_uint(), frame:le_uint())
  end
end

-- The body, by type. Returns the length of a chunk, if there is one, and whether it may begin an operation.
local function add_body(reader, tree, kind, info)
  if kind == 16 or kind == 17 then
    local chunk, begins_operation = add_message(reader, tree, info)
    local padding = reader.limit - reader.at
    if not reader.stopped and padding > 0 then
      if padding > MAX_PADDING then
        tree:add_proto_expert_info(e.malformed, "More padding than " .. MAX_PADDING .. " bytes")
      end
      reader:add(tree, f.padding, padding)
    end
    return chunk, begins_operation
  elseif kind == 18 or kind == 19 then
    reader.what = "the message's id"
    info[#info + 1] = "msg " .. number64((reader:add(tree, f.message_id, 8)))
  elseif kind == 20 then
    reader.what = "the number of messages"
    info[#info + 1] = number64((reader:add(tree, f.sent_messages, 8))) .. " messages in all"
  elseif has_short_header[kind] then
    add_chunk(reader, tree, info)
  elseif kind == 1 then
    add_hello(reader, tree, info)
  elseif kind == 3 or kind == 4 then
    reader.what = "the size"
    local size = reader:add(tree, f.probe_size, 2)
    if size then info[#info + 1] = size:le_uint() .. " bytes" end
  elseif kind == 5 then
    reader.what = "the reason"
    local reason = reader:add(tree, f.reason, 4)
    if reason then info[#info + 1] = reasons[reason:le_uint()] or ("reason " .. reason:le_uint()) end
    tree:add_proto_expert_info(e.reset)
  elseif kind == 6 then
    add_repair(reader, tree, info)
  elseif kind == 7 then
    add_piece(reader, tree, info)
  elseif kind == 2 and reader.at < reader.limit then
    reader.what = "the number of frames recovered"
    local recovered = reader:add(tree, f.recovered, 4)
    if recovered then info[#info + 1] = recovered:le_uint() .. " recovered" end
  end
  if not reader.stopped and reader.at < reader.limit then
    tree:add_proto_expert_info(e.malformed, (reader.limit - reader.at) .. " bytes too many in the header")
  end
  return nil
end

local function add_ranges(reader, tree, count)
  if count > MAX_RANGES then
    tree:add_proto_expert_info(e.malformed, "More than " .. MAX_RANGES .. " SACK ranges")
    return
  end
  reader.what = "the SACK ranges"
  for _ = 1, count do
    if not reader:add(tree, f.sack_begin, 4) then return end
    reader:add(tree, f.sack_end, 4)
  end
end

local function add_checksum(tree, status_field, expert_item, status)
  tree:add(status_field, status):set_generated()
  if status == WRONG then tree:add_proto_expert_info(expert_item) end
end

local function header_status(tvb, header_length)
  if header_length > tvb:reported_len() then return WRONG end
  if header_length > tvb:len() then return CUT end
  local checksum = crc32c(tvb:raw(0, 4), tvb:raw(8, header_length - 8))
  return checksum == tvb(4, 4):le_uint() and RIGHT or WRONG
end

local function add_payload(tvb, tree, header_length, chunk, has_checksum)
  local length = tvb:reported_len() - header_length
  local captured = math.max(0, tvb:len() - header_length)
  if chunk and chunk ~= length then
    tree:add_proto_expert_info(e.malformed, string.format("The chunk has %d bytes, and %d follow the header", chunk, length))
  end
  if captured > 0 then tree:add(f.payload, tvb(header_length, captured)) end
  if has_checksum then
    local status = CUT
    if captured == length then
      status = UNCHECKED
      if gloo_bypass.prefs.check_payload then
        local text = length > 0 and tvb:raw(header_length, length) or ""
        status = crc32c(text) == tvb(20, 4):le_uint() and RIGHT or WRONG
      end
    end
    add_checksum(tree, f.payload_status, e.payload_checksum, status)
  end
  return length
end

-- The beginning of every datagram; `reader` has all or some of it.
local function add_common(reader, tree, pinfo, kind, info)
  reader.what = "the common header"
  reader:add(tree, f.magic, 2)
  reader:add(tree, f.version, 1)
  reader:add(tree, f.type, 1)
  reader:add(tree, f.checksum, 4)
  local receiver = reader:add(tree, f.receiver, 8)
  local flags, flags_item = reader:add(tree, f.flags, 1)
  if flags then
    for _, flag in ipairs({ f.flag_ack, f.flag_echo, f.flag_payload, f.flag_hello, f.flag_covered }) do flags_item:add(flag, flags) end
  end
  reader:add(tree, f.ranges, 1)
  local header_length = reader:add(tree, f.header_length, 2)
  reader:add(tree, f.payload_checksum, 4)
  local sequenced = kind >= FIRST_SEQUENCED
  local sequence = reader:add(tree, sequenced and f.sequence or f.next_sequence, 4)
  if sequence and sequenced then
    info[#info + 1] = "seq " .. sequence:le_uint()
    -- A damaged number would make all that follow look like repetitions.
    local length = header_length:le_uint()
    local intact = length >= SHORT_BYTES and header_status(reader.tvb, length) ~= WRONG
    if intact and note_sequence(pinfo, tostring(receiver:le_uint64()), sequence:le_uint()) then
      tree:add(f.repeated, true):set_generated()
      tree:add_proto_expert_info(e.repeated)
      info[#info + 1] = "(again)"
    end
  end
  local acknowledged = reader:add(tree, f.acknowledged, 4)
  if acknowledged then info[#info + 1] = "ack " .. acknowledged:le_uint() end
  for _, field in ipairs({ f.timestamp, f.echo, f.echo_delay }) do reader:add(tree, field, 4) end
  if has_short_header[kind] then return end
  reader:add(tree, f.message_limit, 4)
  reader:add(tree, f.byte_limit, 8)
end

local function dissect_sealed(tvb, tree)
  local kind = band(tvb(3, 1):uint(), 127)
  local info = { "sealed " .. (types[kind] or ("type " .. kind)) }
  local reader = setmetatable({ tvb = tvb, at = 0, limit = SEALED_BYTES, what = "the sealed header" }, Reader)
  reader:add(tree, f.magic, 2)
  reader:add(tree, f.version, 1)
  local first = reader:add(tree, f.sealed_type, 1)
  if first then tree:add(f.key_phase, first) end
  local number = reader:add(tree, f.packet_number, 4)
  reader:add(tree, f.receiver, 8)
  if number then info[#info + 1] = "number " .. number:le_uint() end
  if reader.stopped then return info end
  local length = tvb:reported_len() - SEALED_BYTES - TAG_BYTES
  if length < COMMON_BYTES - SEALED_BYTES then
    tree:add_proto_expert_info(e.malformed, "Too short to be sealed")
    return info
  end
  local captured = math.min(length, tvb:len() - SEALED_BYTES)
  if captured > 0 then tree:add(f.sealed, tvb(SEALED_BYTES, captured)) end
  if tvb:len() == tvb:reported_len() then
    tree:add(f.tag, tvb(SEALED_BYTES + length, TAG_BYTES))
  else
    tree:add_proto_expert_info(e.cut)
  end
  info[#info + 1] = "len " .. length
  return info
end

local function dissect_whole(tvb, pinfo, tree)
  if tvb(2, 1):uint() == SEALED_VERSION then return dissect_sealed(tvb, tree) end
  local kind = tvb(3, 1):uint()
  local info = { types[kind] or ("type " .. kind) }
  local common = has_short_header[kind] and SHORT_BYTES or COMMON_BYTES
  local reader = setmetatable({ tvb = tvb, at = 0, limit = common }, Reader)
  add_common(reader, tree, pinfo, kind, info)
  local length
  if not reader.stopped then
    local header_length, count = tvb(18, 2):le_uint(), tvb(17, 1):uint()
    if header_length < COMMON_BYTES or header_length > math.min(tvb:reported_len(), MAX_HEADER) then
      tree:add_proto_expert_info(e.malformed, "Impossible header length " .. header_length)
      add_checksum(tree, f.checksum_status, e.header_checksum, WRONG)
      return info
    end
    add_checksum(tree, f.checksum_status, e.header_checksum, header_status(tvb, header_length))
    if tvb(2, 1):uint() ~= VERSION then
      tree:add_proto_expert_info(e.version)
      return info
    end
    if not types[kind] then tree:add_proto_expert_info(e.malformed, "Unknown type " .. kind) end
    reader.limit = header_length
    add_ranges(reader, tree, count)
    if count > 0 then info[#info + 1] = count .. " sack" end
    local chunk, begins_operation = add_body(reader, tree, kind, info)
    length = add_payload(tvb, tree, header_length, kind == 16 and chunk or nil, band(tvb(16, 1):uint(), 4) ~= 0)
    if begins_operation then add_operation(tvb, header_length, tree, info) end
  end
  if length and length > 0 then info[#info + 1] = "len " .. length end
  return info
end

function gloo_bypass.dissector(tvb, pinfo, tree)
  if tvb:len() < 4 or tvb(0, 2):le_uint() ~= MAGIC then return 0 end
  pinfo.cols.protocol = "gloo-bypass"
  local part = tree:add(gloo_bypass, tvb())
  local info = dissect_whole(tvb, pinfo, part)
  pinfo.cols.info = table.concat(info, " ")
  part:append_text(": " .. table.concat(info, " "))
  return tvb:len()
end

-- 16 bits of magic prove little on a foreign port: version and type must agree too, or the header's checksum.
local function looks_like_ours(tvb)
  if tvb:len() < 20 or tvb:reported_len() < COMMON_BYTES or tvb(0, 2):le_uint() ~= MAGIC then return false end
  if tvb(2, 1):uint() == VERSION and types[tvb(3, 1):uint()] then return true end
  if tvb(2, 1):uint() == SEALED_VERSION and types[band(tvb(3, 1):uint(), 127)] then return true end
  local header_length = tvb(18, 2):le_uint()
  return header_length >= COMMON_BYTES and header_length <= MAX_HEADER and header_status(tvb, header_length) == RIGHT
end

gloo_bypass:register_heuristic("udp", function(tvb, pinfo, tree)
  if not looks_like_ours(tvb) then return false end
  gloo_bypass.dissector(tvb, pinfo, tree)
  return true
end)
DissectorTable.get("udp.port"):add_for_decode_as(gloo_bypass)
