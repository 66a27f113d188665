"""Chakra's messages (mlcommons/chakra 1.0.0, schema/protobuf/et_def.proto), described here by their names and field
numbers and built by protobuf, so that no compiler of descriptions is needed.

A file is a GlobalMetadata and then Nodes, each with its length before it as a varint (protolib.py there).
"""

from google.protobuf import descriptor_pb2, message_factory

PACKAGE = "ChakraProtoMsg"
FIELD = descriptor_pb2.FieldDescriptorProto

# The kinds of an attribute's value, in the order of their field numbers: 3 for the first one, 4 for a list of it, ...
VALUE_KINDS = ("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64")
VALUE_KINDS += ("sfixed32", "sfixed64", "bool", "string", "bytes")
FIRST_VALUE = 3

NODE_TYPES = ("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE", "COMM_SEND_NODE")
NODE_TYPES += ("COMM_RECV_NODE", "COMM_COLL_NODE")
COLLECTIVES = ("ALL_REDUCE", "REDUCE", "ALL_GATHER", "GATHER", "SCATTER", "BROADCAST", "ALL_TO_ALL", "REDUCE_SCATTER")
COLLECTIVES += ("REDUCE_SCATTER_BLOCK", "BARRIER")

# {message: ((name, number, type, whether repeated), ...)}; a type with a capital is a message or NodeType
MESSAGES = {
    "GlobalMetadata": (("version", 1, "string", False), ("attr", 2, "AttributeProto", True)),
    "Node": (
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "NodeType", False),
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("inputs", 8, "IOInfo", False),
        ("outputs", 9, "IOInfo", False),
        ("attr", 10, "AttributeProto", True),
    ),
    "IOInfo": (("values", 1, "string", False), ("shapes", 2, "string", False), ("types", 3, "string", False)),
}


def list_name(kind):
    return kind.capitalize() + "List"


def add_field(message, name, number, kind, repeated=False, oneof=None):
    field = message.field.add(
        name=name, number=number, label=FIELD.LABEL_REPEATED if repeated else FIELD.LABEL_OPTIONAL
    )
    if kind == "NodeType":
        field.type, field.type_name = FIELD.TYPE_ENUM, f".{PACKAGE}.{kind}"
    elif kind[0].isupper():
        field.type, field.type_name = FIELD.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(FIELD, f"TYPE_{kind.upper()}")
    if oneof is not None:
        field.oneof_index = oneof


def add_enum(file, name, values):
    enum = file.enum_type.add(name=name)
    for number, value in enumerate(values):
        enum.value.add(name=value, number=number)


def description():
    file = descriptor_pb2.FileDescriptorProto(name="et_def.proto", package=PACKAGE, syntax="proto3")
    attribute = file.message_type.add(name="AttributeProto")
    add_field(attribute, "name", 1, "string")
    add_field(attribute, "doc_string", 2, "string")
    attribute.oneof_decl.add(name="value")
    for index, kind in enumerate(VALUE_KINDS):
        number = FIRST_VALUE + 2 * index
        add_field(attribute, f"{kind}_val", number, kind, oneof=0)
        add_field(attribute, f"{kind}_list", number + 1, list_name(kind), oneof=0)
        add_field(file.message_type.add(name=list_name(kind)), "values", 1, kind, repeated=True)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field in fields:
            add_field(message, *field)
    add_enum(file, "NodeType", NODE_TYPES)
    add_enum(file, "CollectiveCommType", COLLECTIVES)
    return file


_CLASSES = message_factory.GetMessages([description()])
Attribute = _CLASSES[f"{PACKAGE}.AttributeProto"]
GlobalMetadata = _CLASSES[f"{PACKAGE}.GlobalMetadata"]
Node = _CLASSES[f"{PACKAGE}.Node"]
