// Signatures and what they are made of, against what AWS published.

#include "protocols/base/digest.hpp"
#include "protocols/http/http.hpp"
#include "protocols/store/aws_signature.hpp"
#include "tests/support/names.hpp"

namespace parcae {
namespace {

constexpr std::chrono::sys_seconds may_24{std::chrono::seconds(1'369'353'600)};    // 2013-05-24T00:00:00Z
constexpr std::chrono::sys_seconds august_30{std::chrono::seconds(1'440'938'160)}; // 2015-08-30T12:36:00Z
const aws_credentials of_s3{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
const aws_credentials of_suite{"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"};
const std::string nothing = sha256_of(std::string_view());

std::string of_example(aws_request x) {
  x.headers.emplace_back("Host", "examplebucket.s3.amazonaws.com");
  x.headers.emplace_back("x-amz-content-sha256", x.payload);
  x.headers.emplace_back("x-amz-date", aws_time(may_24));
  return aws_authorization(x, of_s3, "us-east-1", "s3", may_24);
}

// given: the four examples of "Signature Calculations for the Authorization Header" in the S3 API Reference / expected:
// their signatures
TEST(aws_signature, examples_of_the_s3_reference) {
  EXPECT_EQ(of_example({"GET", "/test.txt", {}, {{"Range", "bytes=0-9"}}, nothing}),
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "
            "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
            "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
  const std::string body = "Welcome to Amazon S3.";
  EXPECT_THAT(of_example({"PUT",
                          "/" + percent_encoded("test$file.text", true),
                          {},
                          {{"Date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
                          sha256_of(body)}),
              EndsWith("Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"));
  EXPECT_THAT(of_example({"GET", "/", {{"lifecycle", ""}}, {}, nothing}),
              EndsWith("Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"));
  EXPECT_THAT(of_example({"GET", "/", {{"prefix", "J"}, {"max-keys", "2"}}, {}, nothing}),
              EndsWith("Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

// given: requests of the Signature Version 4 test suite: plain, a query out of order, a header's value with spaces, a
// name in capitals / expected: its signatures
TEST(aws_signature, the_test_suite) {
  const auto signed_by = [](aws_request x) {
    x.headers.emplace_back("Host", "example.amazonaws.com");
    x.headers.emplace_back("X-Amz-Date", aws_time(august_30));
    x.payload = nothing;
    return aws_authorization(x, of_suite, "us-east-1", "service", august_30);
  };
  EXPECT_EQ(
      signed_by({"GET", "/", {}, {}, {}}),
      "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
      "SignedHeaders=host;x-amz-date, Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
  EXPECT_THAT(signed_by({"POST", "/", {}, {}, {}}),
              EndsWith("5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"));
  EXPECT_THAT(signed_by({"GET", "/", {{"Param2", "value2"}, {"Param1", "value1"}}, {}, {}}),
              EndsWith("b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"));
  EXPECT_THAT(signed_by({"GET", "/", {}, {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}}, {}}),
              EndsWith("acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"));
}

// given / expected: what is encoded in paths and queries, as in the S3 reference's UriEncode; our "200@3" above all
TEST(aws_signature, encoding) {
  EXPECT_EQ(percent_encoded("gpt-1f/200@3/k.manifest", true), "gpt-1f/200%403/k.manifest");
  EXPECT_EQ(percent_encoded("a/b c+~-_.\xc3\xa9"), "a%2Fb%20c%2B~-_.%C3%A9");
  EXPECT_EQ(canonical_query({{"uploadId", "a/b+c=="}, {"partNumber", "2"}, {"uploads", ""}}),
            "partNumber=2&uploadId=a%2Fb%2Bc%3D%3D&uploads=");
  EXPECT_EQ(md5_of({}), "1B2M2Y8AsgTpgAmY7PhCfg==");
}

// given / expected: URLs, and why others are none
TEST(http, urls) {
  const auto url = parse_http_url("https://minio.example:9000/a/b?c=d#e");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->server, (http_server{true, "minio.example", 9000}));
  EXPECT_EQ(url->target, "/a/b?c=d");
  EXPECT_EQ(url->server.text(), "https://minio.example:9000");
  EXPECT_EQ(parse_http_url("HTTP://[::1]:80")->server.text(), "http://[::1]");
  EXPECT_EQ(parse_http_url("http://h?x")->target, "/?x");
  for (const auto* bad :
       {"", "h", "ftp://h", "http://", "http://h:0", "http://h:99999", "http://h:1x", "http://u@h", "http://[::1",
        "http://[::1]x", "http://[g]", "http://h/\n", "http://h/ ", "https://\xc3\xa9"})
    EXPECT_FALSE(parse_http_url(bad)) << bad;
  EXPECT_FALSE(parse_http_url("http://h/" + std::string(9000, 'x')));
}

// given / expected: times as servers write them
TEST(http, times) {
  EXPECT_EQ(parse_web_time("Fri, 24 May 2013 00:00:00 GMT"), may_24);
  EXPECT_EQ(parse_web_time("2013-05-24T00:00:00Z"), may_24);
  EXPECT_EQ(parse_web_time("2013-05-24T00:00:00.123Z"), may_24);
  for (const auto* bad : {"", "2013-05-24", "2013-05-24T00:00:00", "2013-05-24T00:00:00Zx", "Fri, 24 May 2013"})
    EXPECT_EQ(parse_web_time(bad), std::nullopt) << bad;
}

} // namespace
} // namespace parcae
