"""explain: response codes in words, and what to do about them."""

from __future__ import annotations

from triomq.admin.errors import NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run

# RocketMQ's ResponseCode: number, name, what it means, what to do.
CODES: tuple[tuple[int, str, str, str], ...] = (
    (0, "SUCCESS", "The request was carried out.", "Nothing."),
    (
        1,
        "SYSTEM_ERROR",
        "The broker failed, or an ACL refused: the remark says which.",
        "Read the remark and the broker's log.",
    ),
    (
        2,
        "SYSTEM_BUSY",
        "The broker has more requests than it can finish in time.",
        "Send later and slower; see mqadmin brokerStatus.",
    ),
    (
        3,
        "REQUEST_CODE_NOT_SUPPORTED",
        "The peer does not know this kind of request.",
        "Check the versions; a NameServer was perhaps asked as a broker.",
    ),
    (4, "TRANSACTION_FAILED", "A transactional operation failed.", "Read the broker's log."),
    (
        10,
        "FLUSH_DISK_TIMEOUT",
        "The message is stored, but was not on the disk in time.",
        "Check the disk; the message may come twice if it is sent again.",
    ),
    (
        11,
        "SLAVE_NOT_AVAILABLE",
        "The message is stored, but no slave is in step.",
        "Start or repair the slave of this broker.",
    ),
    (
        12,
        "FLUSH_SLAVE_TIMEOUT",
        "The message is stored, but no slave confirmed in time.",
        "Check the slave and the network between both.",
    ),
    (
        13,
        "MESSAGE_ILLEGAL",
        "The message or its properties are too long or malformed.",
        "Compare its size with maxMessageSize.",
    ),
    (
        14,
        "SERVICE_NOT_AVAILABLE",
        "The broker accepts no messages now: it stops, is a slave, or its disk is full.",
        "See mqadmin brokerStatus and the broker's log.",
    ),
    (
        15,
        "VERSION_NOT_SUPPORTED",
        "The peer does not speak this version of the protocol.",
        "Check the versions of both.",
    ),
    (
        16,
        "NO_PERMISSION",
        "The broker, the topic or the group may not be written or read.",
        "See the permission in mqadmin topicRoute -t TOPIC.",
    ),
    (
        17,
        "TOPIC_NOT_EXIST",
        "No route of the topic is known.",
        "Create it with mqadmin updateTopic, or check the name and the NameServers.",
    ),
    (18, "TOPIC_EXIST_ALREADY", "The topic exists.", "Choose another name."),
    (19, "PULL_NOT_FOUND", "There is no new message.", "Nothing: the consumer asks again."),
    (
        20,
        "PULL_RETRY_IMMEDIATELY",
        "No message in this batch fits the subscription.",
        "Nothing: the consumer asks again.",
    ),
    (
        21,
        "PULL_OFFSET_MOVED",
        "The offset is outside of what the queue holds.",
        "Nothing: the consumer corrects it. Check retention if it reads what was deleted.",
    ),
    (22, "QUERY_NOT_FOUND", "No message or offset fits the query.", "Check the id, the key and the group."),
    (
        23,
        "SUBSCRIPTION_PARSE_FAILED",
        "The subscription's expression cannot be parsed.",
        "Correct the tags or the SQL92 expression.",
    ),
    (
        24,
        "SUBSCRIPTION_NOT_EXIST",
        "The broker does not know this group's subscription.",
        "Wait for the next heartbeat; check that members subscribe to the same.",
    ),
    (
        25,
        "SUBSCRIPTION_NOT_LATEST",
        "The broker has a newer subscription of the group.",
        "Members of one group must have the same subscription.",
    ),
    (26, "SUBSCRIPTION_GROUP_NOT_EXIST", "The group does not exist.", "Create it with mqadmin updateSubGroup."),
    (
        27,
        "FILTER_DATA_NOT_EXIST",
        "The broker lacks the filter of this consumer.",
        "Wait for the next heartbeat; see enablePropertyFilter.",
    ),
    (28, "FILTER_DATA_NOT_LATEST", "The broker has an older filter of this consumer.", "Wait for the next heartbeat."),
    (200, "TRANSACTION_SHOULD_COMMIT", "A half message should be committed.", "Nothing."),
    (201, "TRANSACTION_SHOULD_ROLLBACK", "A half message should be rolled back.", "Nothing."),
    (
        204,
        "TRANSACTION_STATE_GROUP_WRONG",
        "The transaction belongs to another producer group.",
        "End it with the group that began it.",
    ),
    (205, "NO_BUYER_ID", "A required attribute is missing.", "Give it."),
    (
        206,
        "CONSUMER_NOT_ONLINE",
        "No member of the group is connected.",
        "Start a consumer, or check the group's name.",
    ),
    (207, "CONSUME_MSG_TIMEOUT", "The member did not finish the message in time.", "Look at the consumer."),
    (208, "NO_MESSAGE", "There is no message.", "Check the id."),
    (
        209,
        "UPDATE_AND_CREATE_ACL_CONFIG_FAILED",
        "The account was not changed.",
        "Read the remark; the file must be writable.",
    ),
    (210, "DELETE_ACL_CONFIG_FAILED", "The account was not deleted.", "Read the remark."),
    (211, "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED", "The white list was not changed.", "Read the remark."),
)


def explain(run: Run) -> None:
    wanted = run.get("CODE").upper()
    found = [row for row in CODES if not wanted or wanted in (str(row[0]), row[1])]
    if not found:
        raise NotFound(f"{run.get('CODE')!r} is not a response code of RocketMQ 4.9: `mqadmin explain` lists them")
    items = [dict(zip(("code", "name", "meaning", "action"), row, strict=True)) for row in found]
    if wanted and run.out.is_text:
        [item] = items
        run.out.line(f"{item['code']} {item['name']}\n{item['meaning']}\n{item['action']}")
        run.out.item(**item)
    else:
        run.out.table({"code": "CODE", "name": "NAME", "meaning": "MEANING"}, items)
