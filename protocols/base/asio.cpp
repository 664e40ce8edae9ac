// Boost.Asio and Boost.Beast, as far as they are no templates.

#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
