package reput.interop;

import java.util.Map;

/** The commands on stores, brokers, name servers and clients. */
public final class Main {
    private Main() {}

    private static Map<String, StoreMain.Command> commands() {
        Map<String, StoreMain.Command> commands = StoreMain.commands();
        Names names = new Names();
        commands.put("start-namesrv", names::startNamesrv);
        commands.put("start-broker", names::startBroker);
        commands.put("register", names::register);
        commands.put("stop-broker", names::stopBroker);
        commands.put("send", names::send);
        BrokerPull broker = new BrokerPull();
        commands.put("bench-serve", broker::serve);
        commands.put("bench-pull", broker::pull);
        commands.put("broker-serve", broker::serveKept);
        commands.put("broker-start", broker::start);
        commands.put("broker-copy", broker::copy);
        commands.put("broker-stop", broker::stop);
        commands.put("client-send", Clients::send);
        commands.put("client-push", Clients::push);
        commands.put("client-lite", Clients::lite);
        commands.put("client-find", Clients::find);
        commands.put("client-request", ClientCalls::request);
        commands.put("retry-send", Retries::send);
        commands.put("timer-send", Timers::send);
        commands.put("timer-recall", Timers::recall);
        commands.put("transactions", Transactions::run);
        commands.put("retry-consume", Retries::consume);
        commands.put("mqadmin", Mqadmin::run);
        commands.put("mqadmin-commands", arguments -> Mqadmin.commands());
        commands.put("signed-send", Access::send);
        commands.put("signed-consume", Access::consume);
        commands.put("failover-start", Failover::start);
        commands.put("failover-look", Failover::look);
        commands.put("failover-stop", Failover::stop);
        commands.put("traced", Traces::sendAndConsume);
        commands.put("traced-stop", Traces::stop);
        commands.put("filter-evaluate", Filters::evaluate);
        commands.put("filter-send", Filters::send);
        commands.put("filter-consume", Filters::consume);
        commands.put("filter-bits", Filters::bits);
        commands.put("consumer-start", ClientCalls::start);
        commands.put("consumer-take", ClientCalls::take);
        commands.put("consumer-stop", ClientCalls::stop);
        Load load = new Load();
        commands.put("load-connect", load::connect);
        commands.put("load-leave", load::leave);
        commands.put("load-run", load::run);
        commands.put("load-push", load::push);
        commands.put("load-subscribe", load::subscribe);
        commands.put("load-arrived", load::arrived);
        return commands;
    }

    public static void main(String[] words) throws Exception {
        StoreMain.answer(Main::commands);
    }
}
