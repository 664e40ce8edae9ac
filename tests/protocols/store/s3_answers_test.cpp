// What S3 and metadata servers say, right and wrong; where things are.

#include "protocols/store/aws_credentials.hpp"
#include "protocols/store/retry.hpp"
#include "protocols/store/s3_answers.hpp"
#include "protocols/store/s3_place.hpp"
#include "tests/support/names.hpp"

namespace parcae {
namespace {

constexpr auto head = R"(<?xml version="1.0" encoding="UTF-8"?>)";
constexpr auto space = R"( xmlns="http://s3.amazonaws.com/doc/2006-03-01/")";

std::string xml(const std::string& name, const std::string& content) {
  return head + ("<" + name) + space + ">" + content + "</" + name + ">";
}

// given: a list as the S3 reference shows it, with more to come, escaped characters / expected: its content
TEST(s3_answers, lists) {
  const auto x = read_listing(
      xml("ListBucketResult",
          "<Name>b</Name><IsTruncated>true</IsTruncated><NextContinuationToken>a/b==</NextContinuationToken>"
          "<Contents><Key>p/a&amp;b</Key><LastModified>2013-05-24T00:00:00.000Z</LastModified>"
          "<ETag>&quot;1&quot;</ETag><Size>434234</Size></Contents>"
          "<CommonPrefixes><Prefix>p/200@3/</Prefix></CommonPrefixes>"));
  ASSERT_TRUE(x) << x.error();
  ASSERT_EQ(x->objects.size(), 1u);
  EXPECT_EQ(x->objects[0].name, "p/a&b");
  EXPECT_EQ(x->objects[0].bytes, 434234u);
  EXPECT_EQ(x->objects[0].written, std::chrono::sys_seconds(1'369'353'600s));
  EXPECT_THAT(x->prefixes, testing::ElementsAre("p/200@3/"));
  EXPECT_EQ(x->next, "a/b==");
}

// given: objects of years that the clock does not reach / expected: no time, and no overflow
TEST(s3_answers, times_of_no_clock) {
  for (const auto* time : {"1006-05-24T00:00:00Z", "9999-12-31T23:59:59Z", "yesterday", ""}) {
    const auto x = read_listing(
        xml("ListBucketResult", "<Contents><Key>a</Key><LastModified>" + std::string(time) +
                                    "</LastModified><Size>1</Size></Contents><IsTruncated>false</IsTruncated>"));
    ASSERT_TRUE(x) << x.error();
    EXPECT_EQ(x->objects.at(0).written, std::chrono::system_clock::time_point()) << time;
  }
}

// given: no XML, another element, no size, a size that is none, a list that ends before its end / expected: refused
TEST(s3_answers, lists_that_are_none) {
  for (const auto& bad :
       {std::string(), std::string("<"), std::string("{}"), xml("Error", ""),
        xml("ListBucketResult", "<Contents><Key>a</Key></Contents>"),
        xml("ListBucketResult", "<Contents><Key>a</Key><Size>-1</Size></Contents>"),
        xml("ListBucketResult", "<Contents><Key>a</Key><Size>99999999999999999999</Size></Contents>"),
        xml("ListBucketResult", "<Contents><Size>1</Size></Contents>"),
        xml("ListBucketResult", "<Contents><Key>" + std::string(2000, 'a') + "</Key><Size>1</Size></Contents>"),
        xml("ListBucketResult", "<IsTruncated>true</IsTruncated>")})
    EXPECT_FALSE(read_listing(bad)) << bad;
  std::string deep;
  for (int i = 0; i < 300'000; ++i)
    deep += "<a>";
  EXPECT_FALSE(read_listing(deep));
  const std::string entities = "<!DOCTYPE l [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]>";
  const auto x = read_listing(entities + xml("ListBucketResult", "<Contents><Key>&b;</Key><Size>1</Size></Contents>"));
  EXPECT_TRUE(!x || x->objects[0].name == "&b;") << "entities are XML's own";
}

// given / expected: what unfinished uploads are called
TEST(s3_answers, uploads) {
  const auto list = read_unfinished(xml("ListMultipartUploadsResult",
                                        "<IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>"
                                        "<NextUploadIdMarker>u</NextUploadIdMarker>"
                                        "<Upload><Key>p/k</Key><UploadId>id</UploadId></Upload>"));
  ASSERT_TRUE(list) << list.error();
  ASSERT_EQ(list->uploads.size(), 1u);
  EXPECT_EQ(list->uploads[0].key + " " + list->uploads[0].upload, "p/k id");
  EXPECT_EQ(list->next_key + list->next_upload, "ku");
  EXPECT_FALSE(read_unfinished(xml("ListMultipartUploadsResult", "<Upload><Key>p/k</Key></Upload>")));
  EXPECT_EQ(read_upload_id(xml("InitiateMultipartUploadResult", "<UploadId>id</UploadId>")), "id");
  EXPECT_FALSE(read_upload_id(xml("InitiateMultipartUploadResult", "")));
  EXPECT_FALSE(read_upload_id(xml("Error", "<UploadId>id</UploadId>")));
  EXPECT_EQ(size_in_content_range("bytes 0-0/1234"), 1234u);
  for (const auto* bad : {"", "bytes 0-0/*", "bytes 0-0/", "0-0/12", "bytes 0-0/12x", "bytes 0-0/-1"})
    EXPECT_EQ(size_in_content_range(bad), std::nullopt) << bad;
}

// given: refusals / expected: what they say, in one line, and what helps
TEST(s3_answers, refusals) {
  const auto x = read_refusal(xml("Error", "<Code>NoSuchKey</Code><Message>one\n\x1b[2Jtwo</Message>"));
  EXPECT_EQ(x.code, "NoSuchKey");
  EXPECT_EQ(x.message, "one ?[2Jtwo");
  EXPECT_EQ(read_refusal("nonsense").code, "");
  EXPECT_TRUE(is_refusal(xml("Error", "")));
  EXPECT_FALSE(is_refusal(xml("CompleteMultipartUploadResult", "<Error/>")));
  const auto remedy = [](unsigned status, const char* code) { return remedy_of(status, {code, ""}); };
  EXPECT_EQ(remedy(404, "NoSuchKey"), s3_remedy::none);
  EXPECT_EQ(remedy(403, "AccessDenied"), s3_remedy::none);
  EXPECT_EQ(remedy(400, "EntityTooLarge"), s3_remedy::none);
  EXPECT_EQ(remedy(403, "RequestTimeTooSkewed"), s3_remedy::clock);
  EXPECT_EQ(remedy(400, "ExpiredToken"), s3_remedy::credentials);
  EXPECT_EQ(remedy(403, ""), s3_remedy::credentials) << "HEAD cannot say why";
  for (const unsigned status : {408, 409, 429, 500, 502, 503, 504})
    EXPECT_EQ(remedy(status, ""), s3_remedy::again) << status;
  EXPECT_EQ(remedy(400, "RequestTimeout"), s3_remedy::again);
  EXPECT_EQ(remedy(400, "BadDigest"), s3_remedy::again);
}

// given: pauses / expected: none above its limit, which doubles; and all of the room is used
TEST(s3_answers, pauses) {
  const store_pace pace{.first_pause = 100ms, .longest_pause = 1'000ms};
  const std::vector<std::chrono::milliseconds> most{100ms, 200ms, 400ms, 800ms, 1'000ms, 1'000ms};
  for (unsigned i = 0; i < most.size(); ++i) {
    std::chrono::milliseconds longest{0};
    for (std::uint64_t random = 0; random < 5'000; ++random)
      longest = std::max(longest, pause_after(i + 1, pace, random));
    EXPECT_EQ(longest, most[i]) << i;
  }
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(pause(10min, stop.get_token()));
}

// given / expected: places, and why others are none
TEST(s3_answers, places) {
  const auto x = parse_s3_place("s3://my-bucket.eu/runs/a b/");
  ASSERT_TRUE(x) << x.error();
  EXPECT_EQ(x->bucket + "|" + x->prefix, "my-bucket.eu|runs/a b");
  EXPECT_EQ(parse_s3_place("s3://abc")->prefix, "");
  for (const auto* bad : {"s3://", "s3://ab", "s3://Bucket", "s3://b..c", "s3:///x", "http://abc", "s3://abc//x",
                          "s3://abc/../x", "s3://abc/x/./y", "s3://abc/x\x1b", "s3://abc/\xff", "s3://a@bc/x"})
    EXPECT_FALSE(parse_s3_place(bad)) << bad;
  const auto site = [](const char* bucket, const char* endpoint, const char* region) {
    const auto y = site_of(bucket, {endpoint, region});
    return y.server.text() + " " + y.path_of("a/200@3");
  };
  EXPECT_EQ(site("abc", "", "eu-central-1"), "https://abc.s3.eu-central-1.amazonaws.com /a/200%403");
  EXPECT_EQ(site("a.bc", "", "us-east-1"), "https://s3.us-east-1.amazonaws.com /a.bc/a/200%403");
  EXPECT_EQ(site("abc", "http://127.0.0.1:9000", "x"), "http://127.0.0.1:9000 /abc/a/200%403");
  EXPECT_THROW(site("abc", "http://h/path", "x"), store_error);
  EXPECT_THROW(site("abc", "h:9000", "x"), store_error);
  EXPECT_THROW(site("abc", "", "eu central"), store_error);
}

// given: files of AWS's tools, with comments, spaces, several profiles / expected: the profile's own value
TEST(aws_credentials, profiles) {
  const std::string file = "# mine\n[default]\naws_access_key_id = one\r\naws_secret_access_key=two=2\n\n"
                           "[ other ]\naws_access_key_id=three\n[profile work]\nregion = eu-west-1\n";
  EXPECT_EQ(value_in_profile(file, "default", "aws_access_key_id"), "one");
  EXPECT_EQ(value_in_profile(file, "default", "aws_secret_access_key"), "two=2");
  EXPECT_EQ(value_in_profile(file, "other", "aws_access_key_id"), "three");
  EXPECT_EQ(value_in_profile(file, "other", "aws_secret_access_key"), "");
  EXPECT_EQ(value_in_profile(file, "work", "region"), "eu-west-1");
  EXPECT_EQ(value_in_profile("[default]\naws_access_key_id = a b\n", "default", "aws_access_key_id"), "");
}

// given: what a metadata server says of a role / expected: credentials with their end, or why there are none
TEST(aws_credentials, of_roles) {
  const auto x = read_role_credentials(R"({"Code": "Success", "AccessKeyId": "a", "SecretAccessKey": "b", "Token": "c",
                                           "Expiration": "2013-05-24T00:00:00Z"})");
  ASSERT_TRUE(x) << x.error();
  EXPECT_EQ(x->key_id + x->secret + x->token, "abc");
  EXPECT_EQ(x->end, std::chrono::sys_seconds(1'369'353'600s));
  for (const auto* bad :
       {"", "[]", R"({"Code": "Failed", "AccessKeyId": "a", "SecretAccessKey": "b"})", R"({"AccessKeyId": "a"})",
        R"({"AccessKeyId": "a", "SecretAccessKey": 1})", R"({"AccessKeyId": "a\r\nX: y", "SecretAccessKey": "b"})"})
    EXPECT_FALSE(read_role_credentials(bad)) << bad;
}

} // namespace
} // namespace parcae
