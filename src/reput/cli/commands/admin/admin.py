"""`reput admin`: clusters, topics, groups and messages of brokers that run, reput's and Apache RocketMQ's."""

from __future__ import annotations

import inspect

import typer

from reput.cli.command import Command, CommandGroup, help_of
from reput.cli.commands.admin import groups as admin_groups
from reput.cli.commands.admin import messages as admin_messages
from reput.cli.commands.admin import topics as admin_topics
from reput.cli.commands.admin.mqadmin import commands_like
from reput.cli.display.output import write_text


class AdminGroup(CommandGroup):
    """Names the command of RocketMQ's mqadmin if that alone has one."""

    def what_is_meant(self, name: str) -> str:
        """Hint in the error of an unknown command."""
        found = commands_like(name)
        return f"; mqadmin has {', '.join(found)}" if found else super().what_is_meant(name)


admin = typer.Typer(
    name="admin",
    cls=AdminGroup,
    help=inspect.cleandoc(
        """Look at brokers that run, and change their topics and offsets: reput's and Apache RocketMQ's, 4.9 and 5.x.

        \b
        Example:
          reput admin lag shop --namesrv 10.0.0.5:9876

        --namesrv is the address of a name server; without it the environment's NAMESRV_ADDR, then 127.0.0.1:9876.
        --client-config names a file with the user and the keys of TLS; without it the environment's
        REPUT_CLIENT_CONFIG.
        """
    ),
    rich_markup_mode=None,
    add_completion=False,
)


@admin.callback(invoke_without_command=True)
def group(context: typer.Context) -> None:
    """Print the help if no command is named."""
    if context.invoked_subcommand is None:
        write_text(context.get_help())


for _command in (
    admin_topics.cluster,
    admin_topics.forget_broker,
    admin_topics.topics,
    admin_topics.topic,
    admin_topics.create_topic,
    admin_topics.delete_topic,
    admin_groups.groups,
    admin_groups.lag,
    admin_groups.connections,
    admin_groups.reset,
    admin_messages.send,
    admin_messages.peek,
):
    admin.command(_command.__name__.replace("_", "-"), cls=Command, help=help_of(_command))(_command)
