#pragma once

// One HTTP request to a metadata server.

#include "runtime/cloud/metadata_answers.hpp"
#include "runtime/cloud/poll_schedule.hpp"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <variant>

namespace parcae {

/// Over a connection of its own. Within the question's limit there is an answer, or a reason why there is none: nobody
/// listens, silence, no HTTP, more than 64 KiB, an end too early. Redirections are not followed, they are answers.
boost::asio::awaitable<std::variant<metadata_answer, unusable>>
ask_metadata_server(boost::asio::ip::tcp::endpoint server, metadata_question question);

} // namespace parcae
