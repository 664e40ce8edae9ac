#pragma once

// How Asio's operations are awaited here.

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace parcae {

/// A coroutine gets the error beside what it waited for, instead of an exception.
inline constexpr auto as_result = boost::asio::as_tuple(boost::asio::use_awaitable);

} // namespace parcae
