#!/usr/bin/env escript
%%! +Bd
%% Runs Poe for `quoth bench peers`: the server, and Poe's own client over its socket.
%%
%%     poe.escript versions
%%     poe.escript serve DIRECTORY
%%     poe.escript write PORT TOPIC MESSAGES SIZE VALUE
%%     poe.escript read PORT TOPIC ROUNDS SIZE VALUE
%%
%% SIZE: messages of a call. VALUE: of each message, in hexadecimal digits. `write` and `read` print how many
%% such messages there were and the seconds that the calls took, without the start of Erlang. Poe and what it
%% is made of are found in ERL_LIBS.

-mode(compile).

-define(NEEDED, [appendix_server, bisect_server, gen_server2, poe_protocol, ranch]).
%% The settings of Poe's own benchmark, which are its defaults. They have no port: the listener gets it.
-define(SETTINGS, [
    {check_interval, 0.5},
    {count_limit, 100000},
    {size_limit, 64 * 1024 * 1024},
    {buffer_count_max, 100},
    {worker_timeout, 1},
    {max_age, infinity}
]).

main(["versions"]) ->
    case [Module || Module <- ?NEEDED, code:which(Module) =:= non_existing] of
        [] ->
            ok = application:load(poe),
            {ok, Version} = application:get_key(poe, vsn),
            io:format("Poe ~s, Erlang/OTP ~s~n", [Version, erlang:system_info(otp_release)]);
        Missing ->
            io:format("~s~n", [lists:join(", ", [atom_to_list(Module) || Module <- Missing])]),
            halt(1)
    end;
main(["serve", Directory]) ->
    %% Not `poe:start/1`, which listens on all interfaces.
    logger:remove_handler(default),
    [application:set_env(poe, Key, Setting) || {Key, Setting} <- ?SETTINGS],
    ok = application:start(ranch),
    {ok, _} = poe_sup:start_link(Directory),
    Loopback = [{ip, {127, 0, 0, 1}}, {port, 0}],
    {ok, _} = ranch:start_listener(poe_tcp_listener, 10, ranch_tcp, Loopback, poe_listener, []),
    io:format("poe: ready ~w~n", [ranch:get_port(poe_tcp_listener)]),
    receive after infinity -> ok end;
main(["write", Port, Topic, Messages, Size, Value]) ->
    write(connect(Port), list_to_binary(Topic), number(Messages), number(Size), bytes(Value));
main(["read", Port, Topic, Rounds, Size, Value]) ->
    read(connect(Port), list_to_binary(Topic), number(Rounds), number(Size), bytes(Value)).

%% A first call, which does not count, makes the topic. What is stored is read behind the time.
write(Socket, Topic, Messages, Size, Value) ->
    write_calls(Socket, Topic, 1, Size, Value),
    {Seconds, ok} = timed(fun() -> write_calls(Socket, Topic, Messages div Size, Size, Value) end),
    report(read_pages(Socket, Topic, Size, Value, 0, 0) - Size, Seconds).

write_calls(_, _, 0, _, _) ->
    ok;
write_calls(Socket, Topic, Calls, Size, Value) ->
    poe_protocol:write(Topic, lists:duplicate(Size, Value), Socket),
    write_calls(Socket, Topic, Calls - 1, Size, Value).

read(Socket, Topic, Rounds, Size, Value) ->
    {Seconds, Counts} = timed(fun() ->
        [read_pages(Socket, Topic, Size, Value, 0, 0) || _ <- lists:seq(1, Rounds)]
    end),
    report(lists:sum(Counts), Seconds).

read_pages(Socket, Topic, Size, Value, After, Count) ->
    case poe_protocol:read(Topic, After, Size, Socket) of
        [] ->
            Count;
        Page ->
            {Last, Found} = look(Page, Value, After, Count),
            read_pages(Socket, Topic, Size, Value, Last, Found)
    end.

%% Fails at a message with another value.
look([{Pointer, Value} | Page], Value, _, Count) -> look(Page, Value, Pointer, Count + 1);
look([], _, Last, Count) -> {Last, Count}.

connect(Port) -> poe_protocol:socket("127.0.0.1", number(Port)).

number(Text) -> list_to_integer(Text).

bytes(Digits) -> binary:decode_hex(list_to_binary(Digits)).

timed(Work) ->
    Began = erlang:monotonic_time(),
    Result = Work(),
    {erlang:convert_time_unit(erlang:monotonic_time() - Began, native, nanosecond) / 1.0e9, Result}.

report(Count, Seconds) -> io:format("~w ~w~n", [Count, Seconds]).
