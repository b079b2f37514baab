// greeting: publishes a record and reads it again, in C++17, with the C header as it is.
//
//     greeting URL TOPIC

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "quoth.h"

namespace {

struct Closer {
    void operator()(quoth_client *client) const { quoth_close(client); }
    void operator()(quoth_reader *reader) const { quoth_reader_close(reader); }
};

using Client = std::unique_ptr<quoth_client, Closer>;
using Reader = std::unique_ptr<quoth_reader, Closer>;

void check(int code, const quoth_error &error) {
    if (code > QUOTH_OK) throw std::runtime_error(std::string(error.name) + ": " + error.text);
}

Client connect(const char *url) {
    quoth_client *client = nullptr;
    quoth_error error;
    check(quoth_connect(url, nullptr, &client, &error), error);
    return Client(client);
}

std::string_view text(quoth_bytes found) { return {static_cast<const char *>(found.data), found.size}; }

quoth_ack publish(const Client &client, const char *topic, std::string_view value) {
    quoth_record record = QUOTH_RECORD;
    record.value = {value.data(), value.size()};
    record.key = quoth_text("from C++");
    quoth_ack ack{};
    quoth_error error;
    check(quoth_publish(client.get(), topic, &record, 1, QUOTH_DEFAULT, &ack, &error), error);
    return ack;
}

void print_from(const Client &client, const char *topic, uint64_t pointer) {
    quoth_reader_options options = QUOTH_READER_OPTIONS;
    options.after = pointer - 1;
    quoth_reader *opened = nullptr;
    quoth_error error;
    check(quoth_reader_open(client.get(), topic, &options, &opened, &error), error);
    Reader reader(opened);
    quoth_message message;
    int code;
    while ((code = quoth_read(reader.get(), 0, &message, &error)) == QUOTH_OK)
        std::printf("%.*s, %.*s\n", int(message.key.size), text(message.key).data(), int(message.value.size),
                    text(message.value).data());
    check(code, error);
}

}  // namespace

int main(int count, char **arguments) try {
    if (count != 3) return 2;
    Client client = connect(arguments[1]);
    print_from(client, arguments[2], publish(client, arguments[2], "hello").first);
    return 0;
} catch (const std::exception &problem) {
    std::fprintf(stderr, "greeting: %s\n", problem.what());
    return 1;
}
