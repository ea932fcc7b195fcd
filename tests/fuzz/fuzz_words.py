"""The kinds of inputs, and typical pieces of the inputs of each target, which a mutation puts in as a whole."""

from __future__ import annotations

PROPERTY_WORDS = [
    *(b"TAGS\x01", b"KEYS\x01", b"UNIQ_KEY\x01", b"WAIT\x01false\x02", b"DELAY\x01", b"CLUSTER\x01", b"\x02", b"\x01"),
    *(b"INNER_MULTI_QUEUE_OFFSET\x01", b"INNER_MULTI_DISPATCH\x01", b"TRAN_MSG\x01true"),
]
JSON_WORDS = [
    *(b'"code":', b'"flag":', b'"opaque":-', b'"version":', b'"language":"GO"', b'"extFields":{', b'"remark":null'),
    *(b'"serializeTypeCurrentRPC":"JSON"', b"\\u0041", b'\\"', b"\\\\", b'"a":"b"', b"},", b"2147483648", b"null"),
]
# Whole entries, because a mutation rarely makes length and text match.
ENTRY_WORDS = [
    b"\x00\x01" + key + len(value).to_bytes(4, "big") + value
    for key in (b"d", b"e", b"g", b"k", b"x")
    for value in (b"9" * 18, b"9" * 19, b"-0", b"007", b"-2147483649", b"2147483647", b"true", b"\xc3\xbc", b"")
]
SQL_WORDS = [
    *(b" AND ", b" OR ", b" NOT ", b" BETWEEN ", b" IN ('x')", b" IS NULL", b"TRUE", b"<>", b">=", b"'", b"(", b")"),
    *(b"a", b"price", b"-9223372036854775808", b"1e400", b".5", b"/*", b"*/", b"--", b"\n"),
]
YAML_WORDS = [
    *(b"accounts:\n", b"- accessKey: a\n", b"  secretKey: b\n", b"  admin: true\n", b"  topicPerms:\n  - t=PUB|SUB\n"),
    *(b"globalWhiteRemoteAddresses:\n- 10.0.{1,2}.*\n", b"&a ", b"*a", b"<<: ", b"!!int ", b"- ", b": ", b"\n", b"["),
]
TABLE_WORDS = [
    *(b'"offsetTable":{', b'"T@G":{0:5}', b'"topicConfigTable":{', b'"dataVersion":{"counter":1}', b'"perm":-1'),
    *(b"null", b"9223372036854775808", b"-1", b'"$ref":"$"', b"[]", b"{}", b"1e9", b'""', b"true"),
]
HEADER_WORDS = [
    *(b"\x00\x05topic\x00\x00\x00\x01T", b"\x00\x07queueId\x00\x00\x00\x011", b"\x00\x05order\x00\x00\x00\x04true"),
    *(b'"topic":"T"', b'"queueId":1', b'"offset":"9223372036854775807"', b'"order":"1"', b'"sysFlag":true', b"null"),
    *(b"\x00\x06offset\x00\x00\x00\x02-1", b"\x00\x0dconsumerGroup\x00\x00\x00\x01G", b'"consumerGroup":"G"'),
]
BODY_WORDS = [
    *(b'"brokerAddrs":{0:"h:1"}', b'"clientID":"c"', b'"consumerDataSet":[', b'"subscriptionDataSet":['),
    *(b'"brokerDatas":[', b'"subString":"*"', b'"tagsSet":["a"]', b'"codeSet":[1]', b'"topicConfigTable":{'),
    *(b'"perm":6', b"T 4 4 6 SINGLE_TAG", b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x01"),
    *(b'"table":{', b"null", b"1e999", b"-0.0", b"'a'", b'{"$ref":"$.a[0]"}', b"9223372036854775808", b"true"),
    *(b'"mqTable":[{"brokerName":"b","queueId":0,"topic":"T"},1]',),
]
LINE_WORDS = [
    *(b"key=value\n", b"\\u0041", b"\\uD83D\\uDE00", b"\\\n", b"\r\n", b"#", b"!", b" : ", b"\\=", b"\\u00", b"\\t"),
    b"\f",
]
STREAM_WORDS = [
    *(b"\x00" * 12, b"\x00" * 8, b"\x00" * 7 + b"\x10" + b"\x00\x00\x00\x04", b"\x00\x00\x00\x04", b"\xff" * 8),
    *(b"\x7f" + b"\xff" * 7, b"\x04\x00\x00\x00", b"\x04\x00\x00\x01"),
]
HTTP2_WORDS = [
    *(b"\x00\x00\x04\x01\x05\x00\x00\x00\x01\x83\x86\x84\x82", b"\x00\x00\x04\x01\x04\x00\x00\x00\x03\x83\x86\x84\x82"),
    *(b"\x00\x00\x03\x00\x00\x00\x00\x00\x01abc", b"\x00\x00\x03\x00\x01\x00\x00\x00\x03abc"),
    *(b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08", b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x01\x00\x00"),
    *(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x05", b"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"),
    *(b"\x00\x00\x03\x01\x00\x00\x00\x00\x01\x83\x86\x84", b"\x00\x00\x01\x09\x04\x00\x00\x00\x01\xbe", b"\xbe"),
    b"\x40\x01a\x01b",
]
ADDRESS_WORDS = [
    *(b"0A0000010000", b"2A9F0000000000000064", b"127.0.0.1:10911", b"[::1]:1", b"65535", b"65536", b"FE80" * 8),
    b"0" * 32,
]
MEMBER_WORDS = [
    *(b'"term":', b'"leaderId":"n1"', b'"localId":"n1"', b'"remoteId":"n0"', b'"group":"g"', b'"commitIndex":'),
    *(b'"entry":{', b'"batchEntry":[', b'"index":', b'"pos":', b'"size":49', b'"body":"eA=="', b'"type":"TRUNCATE"'),
    *(b"9223372036854775807", b"9223372036854775808", b"-1", b"1.5", b"4611686018427387904", b"144115188075855872"),
    *(b'"ledgerEndIndex":', b'"beginIndex":', b'"takeLeadershipLedgerIndex":', b'"transfereeId":"n0"', b"null"),
]
# Fields of protobuf: numbers and types that the bodies have.
GRPC_WORDS = [
    *(b"\x0a\x03\x12\x01T", b"\x12\x06\x0a\x01a\x12\x01b", b"\x22\x01x", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
    *(
        b"\x08\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
        b"\x10\xff\xff\xff\xff\x0f",
        b"\x0a\x00",
        b"\x12\x00",
        b"\x1a\x00",
    ),
    *(b"\x00\x00\x00\x00\x01a", b"\x01\x00\x00\x00\x14\x1f\x8b\x08", b"1 2 3 4 0 broker-a 5 6 7", b"/", b"\x00" * 5),
    *(b"host:8081", b"[::1]:1", b":", b"\xb2", b"99999999999"),
]
PROXY_WORDS = [
    *(
        b"PROXY TCP4 ",
        b"PROXY UNKNOWN\r\n",
        b"10.1.2.3 ",
        b"2001:db8::1 ",
        b"65535",
        b"\r\n",
        b"\x21\x11\x00\x0c",
        b"\x20\x00",
    ),
    b"\r\n\r\n\x00\r\nQUIT\n",
]
WORDS = {
    "grpc_stream": GRPC_WORDS,
    "grpc_bodies": GRPC_WORDS,
    "grpc_authority": GRPC_WORDS,
    "proxy_headers": PROXY_WORDS,
    "header_fields": HEADER_WORDS,
    "http2_server": HTTP2_WORDS,
    "http2_header_block": HTTP2_WORDS,
    "json_bodies": BODY_WORDS + JSON_WORDS,
    "registration_body": BODY_WORDS,
    "member_requests": MEMBER_WORDS + JSON_WORDS,
    "properties_text": LINE_WORDS,
    "replication_stream": STREAM_WORDS,
    "ids_and_addresses": ADDRESS_WORDS,
    "taken_record": PROPERTY_WORDS,
    "pulled_records": PROPERTY_WORDS,
    "whole_record": PROPERTY_WORDS,
    "sql92_expression": SQL_WORDS,
    "fastjson_text": JSON_WORDS + TABLE_WORDS,
    "acl_yaml": YAML_WORDS,
    "json_tables": TABLE_WORDS,
    "transaction_records": PROPERTY_WORDS,
    "json_header": JSON_WORDS,
    "header_record": ENTRY_WORDS,
    "binary_header": ENTRY_WORDS,
    "frames": JSON_WORDS + ENTRY_WORDS,
    "sent_properties": PROPERTY_WORDS,
    "stored_properties": PROPERTY_WORDS,
    "due_record": PROPERTY_WORDS,
}
# Targets of one kind share the time that the kind gets.
KINDS = {
    "frames": ("frames", "replication_stream"),
    "HTTP/2": ("http2_server", "http2_header_block"),
    "gRPC": ("grpc_stream", "grpc_bodies", "grpc_authority", "proxy_headers"),
    "headers": ("binary_header", "json_header", "header_record", "header_fields"),
    "fastjson": ("fastjson_text", "json_bodies", "registration_body", "member_requests"),
    "properties": ("sent_properties", "stored_properties", "properties_text", "ids_and_addresses"),
    "records": ("record", "taken_record", "pulled_records", "due_record", "whole_record", "transaction_records"),
    "SQL92": ("sql92_expression",),
    "ACL files": ("acl_yaml",),
    "store files": ("store_files", "checkpoint_file", "json_tables"),
}
