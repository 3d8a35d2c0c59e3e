"""The operations of A2A by their names: what each is asked with, and what of the desk answers it."""

from typing import Any

from a2a.types import a2a_pb2 as pb
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message as ProtoMessage

METHODS: dict[str, tuple[type[ProtoMessage], str]] = {
    "SendMessage": (pb.SendMessageRequest, "on_message_send"),
    "SendStreamingMessage": (pb.SendMessageRequest, "on_message_send_stream"),
    "GetTask": (pb.GetTaskRequest, "on_get_task"),
    "ListTasks": (pb.ListTasksRequest, "on_list_tasks"),
    "CancelTask": (pb.CancelTaskRequest, "on_cancel_task"),
    "SubscribeToTask": (pb.SubscribeToTaskRequest, "on_subscribe_to_task"),
    "CreateTaskPushNotificationConfig": (pb.TaskPushNotificationConfig, "on_create_task_push_notification_config"),
    "GetTaskPushNotificationConfig": (
        pb.GetTaskPushNotificationConfigRequest,
        "on_get_task_push_notification_config",
    ),
    "ListTaskPushNotificationConfigs": (
        pb.ListTaskPushNotificationConfigsRequest,
        "on_list_task_push_notification_configs",
    ),
    "DeleteTaskPushNotificationConfig": (
        pb.DeleteTaskPushNotificationConfigRequest,
        "on_delete_task_push_notification_config",
    ),
    "GetExtendedAgentCard": (pb.GetExtendedAgentCardRequest, "on_get_extended_agent_card"),
}
STREAMS = ("SendStreamingMessage", "SubscribeToTask")


def as_response(wanted: ProtoMessage, given: Any) -> ProtoMessage:
    """What the desk gave, as the message that the operation is answered with."""
    match given:
        case None:
            return Empty()
        case pb.Task() if isinstance(wanted, pb.SendMessageRequest):
            return pb.SendMessageResponse(task=given)
        case pb.Message():
            return pb.SendMessageResponse(message=given)
        case _:
            return given
