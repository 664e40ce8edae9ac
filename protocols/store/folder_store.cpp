#include "protocols/store/folder_store.hpp"

#include "protocols/base/durable_file.hpp"
#include "protocols/base/input_file.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace parcae {

namespace {

constexpr std::size_t max_entries = 100'000;
constexpr std::string_view partial_mark = ".partial-";

class file_reader : public object_reader {
public:
  explicit file_reader(const std::filesystem::path& path) : path_(path.string()), file_(path) {}

  std::uint64_t size() const override { return file_.size(); }

  void read(std::uint64_t from, std::span<std::byte> to) override {
    try {
      if (std::exchange(at_, from + to.size()) != from)
        file_.seek(from);
      if (file_.read(to) == to.size())
        return;
    } catch (const input_error& e) {
      throw store_error(store_trouble::damaged, e.what());
    }
    throw store_error(store_trouble::damaged, path_ + " was cut short");
  }

private:
  const std::string path_;
  input_file file_;
  std::uint64_t at_ = 0;
};

class file_writer : public object_writer {
public:
  explicit file_writer(const std::filesystem::path& path) : file_(path, file_access::private_) {}

  void write(std::span<const std::byte> bytes) override { file_.write(bytes); }
  void publish() override { file_.publish(); }

private:
  durable_file file_;
};

std::chrono::system_clock::time_point time_of(const std::filesystem::file_time_type& x) {
  return std::chrono::time_point_cast<std::chrono::system_clock::duration>(std::chrono::file_clock::to_sys(x));
}

class folder_store : public object_store {
public:
  explicit folder_store(std::filesystem::path folder) : folder_(std::move(folder)), place_(folder_.string()) {}

  const std::string& place() const override { return place_; }

  std::shared_ptr<object_store> below(const std::string& name) const override {
    return open_folder_store(folder_ / name);
  }

  stored_list list() const override {
    stored_list result;
    std::error_code failed;
    std::filesystem::directory_iterator i(folder_, failed);
    for (const std::filesystem::directory_iterator end; !failed && i != end; i.increment(failed)) {
      std::error_code gone;
      auto name = i->path().filename().string();
      if (i->is_directory(gone))
        result.folders.push_back(std::move(name));
      else if (name.find(partial_mark) == name.npos) {
        const auto bytes = i->is_regular_file(gone) ? i->file_size(gone) : 0;
        const auto written = i->last_write_time(gone);
        result.objects.push_back({std::move(name), gone ? 0 : bytes, time_of(written)});
      }
      if (result.folders.size() + result.objects.size() > max_entries)
        throw store_error(store_trouble::unreachable, place_ + " has more than 100000 files and folders");
    }
    if (failed && failed != std::errc::no_such_file_or_directory && failed != std::errc::not_a_directory)
      throw store_error(store_trouble::unreachable, place_ + " cannot be read: " + failed.message());
    std::ranges::sort(result.objects, {}, &stored_object::name);
    std::ranges::sort(result.folders);
    return result;
  }

  std::unique_ptr<object_reader> open(const std::string& name) const override { return open_file(folder_ / name); }

  std::unique_ptr<object_writer> create(const std::string& name, std::uint64_t) override {
    return std::make_unique<file_writer>(folder_ / name);
  }

  bool put_if_absent(const std::string& name, std::span<const std::byte> bytes) override {
    durable_file file(folder_ / name, file_access::private_);
    file.write(bytes);
    if (file.publish_if_absent())
      return true;
    return holds(name, bytes);
  }

  void remove(const std::string& name) override {
    const auto path = folder_ / name;
    std::error_code failed;
    std::filesystem::remove(path, failed);
    if (failed && failed != std::errc::not_a_directory)
      throw store_error(store_trouble::unreachable, path.string() + " cannot be removed: " + failed.message());
    std::filesystem::remove(path.parent_path(), failed); // unless others have files there
  }

  void give_up_unfinished(const std::function<bool(std::string_view)>& ours) override {
    std::error_code failed;
    std::vector<std::filesystem::path> left;
    for (std::filesystem::recursive_directory_iterator i(folder_, failed), end; !failed && i != end;
         i.increment(failed)) {
      const auto name = i->path().filename().string();
      if (const auto mark = name.find(partial_mark); mark != name.npos && ours(std::string_view(name).substr(0, mark)))
        left.push_back(i->path());
    }
    for (const auto& path : left)
      std::filesystem::remove(path, failed);
  }

private:
  const std::filesystem::path folder_;
  const std::string place_;
};

} // namespace

std::unique_ptr<object_reader> open_file(const std::filesystem::path& path) {
  try {
    return std::make_unique<file_reader>(path);
  } catch (const input_error& e) {
    std::error_code ignored;
    throw store_error(std::filesystem::exists(path, ignored) ? store_trouble::damaged : store_trouble::absent,
                      e.what());
  }
}

std::shared_ptr<object_store> open_folder_store(std::filesystem::path folder) {
  // Without a slash at its end.
  return std::make_shared<folder_store>((std::filesystem::absolute(folder) / "").lexically_normal().parent_path());
}

} // namespace parcae
