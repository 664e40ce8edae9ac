// The part of Boost.Asio that needs OpenSSL; apart, so that programs without TLS do not.

#include <boost/asio/ssl/impl/src.hpp>
